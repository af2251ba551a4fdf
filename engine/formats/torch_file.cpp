#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "engine/formats/mapped_tensors.h"
#include "engine/formats/pickle.h"
#include "engine/formats/tensor_file.h"
#include "engine/formats/zip_archive.h"

// Layout (torch.save since 1.6): a zip archive of stored members NAME/data.pkl, NAME/byteorder,
// NAME/data/KEY per storage; the pickle describes tensors as views of storages.
namespace draftscope {
namespace {

class TorchFile final : public MappedTensors {
  public:
    using MappedTensors::MappedTensors;

    Status read();

  private:
    using Index = Pickle::Index;
    Status find_prefix();
    Status check_byte_order() const;
    Result<bool> add_dictionary(const Pickle& pickle, Index index);
    Status add_tensor(const std::string& name, const Pickle::Tensor& tensor);
    bool add_numbers(const Pickle& pickle, const Pickle::Value& list);

    ZipArchive archive_;
    std::string prefix_;
    std::vector<std::int64_t> numbers_;  ///< a saved list of numbers
};

Status TorchFile::find_prefix() {
    constexpr std::string_view pickle = "data.pkl";
    for (const auto& [name, data] : archive_.members()) {
        const bool top_level = name.size() > pickle.size() && name.ends_with("/data.pkl") &&
                               name.find('/') == name.size() - pickle.size() - 1;
        if (!top_level) continue;
        prefix_ = name.substr(0, name.size() - pickle.size());
        return {};
    }
    return bad_input("{}: is a zip archive without data.pkl, not a PyTorch checkpoint", path());
}

Status TorchFile::check_byte_order() const {
    const auto* order = archive_.find(prefix_ + "byteorder");
    if (order == nullptr) return {};
    const std::string_view text(reinterpret_cast<const char*>(order->data()), order->size());
    if (text == "little") return {};
    return bad_input("{}: byteorder is '{}', expected little-endian", path(), printable(text));
}

/// Whether the strides are row-major; strides of extents of 1 are ignored.
bool is_row_major(const Pickle::Tensor& tensor) {
    std::int64_t expected = 1;
    for (std::size_t i = tensor.shape.size(); i-- > 0;) {
        if (tensor.shape[i] == 0) return true;
        if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
        if (__builtin_mul_overflow(expected, tensor.shape[i], &expected)) return false;
    }
    return true;
}

Status TorchFile::add_tensor(const std::string& name, const Pickle::Tensor& tensor) {
    const std::string shown = printable(name);
    const auto* storage = archive_.find(prefix_ + "data/" + tensor.storage);
    if (storage == nullptr)
        return bad_input("{}: storage '{}' of tensor '{}' is missing; the file is damaged", path(),
                         printable(tensor.storage), shown);
    if (!is_row_major(tensor)) {
        return bad_input(
            "{}: tensor '{}' has strides [{}], but only row-major tensors are supported; save it with "
            ".contiguous()",
            path(), shown, fmt::join(tensor.strides, ", "));
    }
    const DataType& type = *find_data_type(tensor.type);
    TensorInfo info{name, std::string(tensor.type), tensor.shape, 0};
    const auto bytes = tensor_bytes(type, info.shape);
    const auto skipped = checked_product(static_cast<std::uint64_t>(tensor.offset), type.bytes);
    if (!bytes || !skipped || *skipped > storage->size() || *bytes > storage->size() - *skipped) {
        return bad_input("{}: tensor '{}' of shape [{}] does not fit its storage of {} bytes", path(), shown,
                         fmt::join(tensor.shape, ", "), storage->size());
    }
    info.bytes = *bytes;
    if (!add(std::move(info), type, storage->data() + *skipped))
        return bad_input("{}: tensor '{}' appears twice", path(), shown);
    return {};
}

/// Adds the tensors of a dictionary; returns false if it has none.
Result<bool> TorchFile::add_dictionary(const Pickle& pickle, Index index) {
    const Pickle::Value& dictionary = pickle.at(index);
    bool any = false;
    for (std::size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
        const Pickle::Value& key = pickle.at(dictionary.items[i]);
        const Pickle::Value& value = pickle.at(dictionary.items[i + 1]);
        if (key.kind != Pickle::Kind::text || value.kind != Pickle::Kind::tensor) continue;
        DS_TRY(add_tensor(key.text, value.tensor));
        any = true;
    }
    return any;
}

/// Reads a list of token ids, the format of FR-Spec's rankings.
bool TorchFile::add_numbers(const Pickle& pickle, const Pickle::Value& list) {
    for (const Index item : list.items) {
        if (pickle.at(item).kind != Pickle::Kind::integer) return false;
        numbers_.push_back(pickle.at(item).integer);
    }
    if (numbers_.empty()) return false;
    TensorInfo info{"ids", "I64", {static_cast<std::int64_t>(numbers_.size())}, numbers_.size() * 8};
    return add(std::move(info), *find_data_type("I64"),
               reinterpret_cast<const std::uint8_t*>(numbers_.data()));
}

Status TorchFile::read() {
    DS_ASSIGN(archive_, ZipArchive::open(file()));
    DS_TRY(find_prefix());
    DS_TRY(check_byte_order());
    DS_ASSIGN(const Pickle pickle, Pickle::read(*archive_.find(prefix_ + "data.pkl"), path()));
    const Pickle::Value& root = pickle.root();
    if (root.kind == Pickle::Kind::list && add_numbers(pickle, root)) return {};
    if (root.kind == Pickle::Kind::tensor) return add_tensor("ids", root.tensor);
    if (root.kind == Pickle::Kind::dictionary) {
        for (std::size_t i = 0; i + 1 < root.items.size(); i += 2) {
            // Trainers wrap the state dict: {"state_dict": {...}, "epoch": 3, ...}.
            const std::string& key = pickle.at(root.items[i]).text;
            const bool wrapper = key == "state_dict" || key == "model" || key == "module";
            if (!wrapper || pickle.at(root.items[i + 1]).kind != Pickle::Kind::dictionary) continue;
            DS_ASSIGN(const bool inner, add_dictionary(pickle, root.items[i + 1]));
            if (inner) return {};
        }
        DS_ASSIGN(const bool any, add_dictionary(pickle, pickle.root_index()));
        if (any) return {};
    }
    return bad_input("{}: holds neither a dictionary of tensors nor a list of token ids", path());
}

}  // namespace

Result<std::unique_ptr<WeightSource>> open_torch_file(const std::string& path) {
    DS_ASSIGN(auto file, MappedFile::open(path, "a PyTorch checkpoint"));
    auto out = std::make_unique<TorchFile>(std::move(file));
    DS_TRY(out->read());
    return std::unique_ptr<WeightSource>(std::move(out));
}

Result<std::unique_ptr<WeightSource>> open_tensor_file(const std::string& path) {
    DS_ASSIGN(const auto file, MappedFile::open(path, "a file of tensors"));
    const auto bytes = file->bytes();
    const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                                 std::min<std::size_t>(bytes.size(), 4));
    if (start == "PK\x03\x04") return open_torch_file(path);
    // A bare pickle, written by torch.save before version 1.6.
    if (start.starts_with("\x80\x02") && bytes.size() > 2 && bytes[2] == 0x8a) {
        return bad_input(
            "{}: was saved by a PyTorch older than 1.6, which this version does not read; convert it: python "
            "-c \"import torch, safetensors.torch as s; s.save_file(torch.load('{}', weights_only=True), "
            "'model.safetensors')\"",
            path, path);
    }
    return open_safetensors(path);
}

}  // namespace draftscope
