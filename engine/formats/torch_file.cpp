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
    Status find_prefix();
    Result<bool> add_dictionary(const pickle::Group& dictionary);
    Status add_tensor(std::string_view name, const pickle::Tensor& tensor);
    bool add_numbers(const pickle::Group& list);
    const std::span<const std::uint8_t>* member(std::string_view name) const {
        const auto found = members_.find(prefix_ + std::string(name));
        return found == members_.end() ? nullptr : &found->second;
    }

    ZipMembers members_;
    std::string prefix_;
    std::vector<std::int64_t> numbers_;  ///< a saved list of numbers
};

Status TorchFile::find_prefix() {
    constexpr std::string_view pickle = "data.pkl";
    for (const auto& [name, data] : members_) {
        const std::size_t folder = name.find('/') + 1;
        if (folder == 0 || name.substr(folder) != pickle) continue;
        prefix_ = name.substr(0, folder);
        const auto* const order = member("byteorder");
        if (order == nullptr) return {};
        const std::string_view text(reinterpret_cast<const char*>(order->data()), order->size());
        if (text == "little") return {};
        return bad_input("{}: byteorder is '{}', expected little-endian", path(), printable(text));
    }
    return bad_input("{}: is a zip archive without data.pkl, not a PyTorch checkpoint", path());
}

/// Whether the strides are row-major; strides of extents of 1 are ignored.
bool is_row_major(const pickle::Tensor& tensor) {
    std::int64_t expected = 1;
    for (std::size_t i = tensor.shape.size(); i-- > 0;) {
        if (tensor.shape[i] == 0) return true;
        if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
        if (__builtin_mul_overflow(expected, tensor.shape[i], &expected)) return false;
    }
    return true;
}

Status TorchFile::add_tensor(std::string_view name, const pickle::Tensor& tensor) {
    const std::string shown = printable(name);
    const auto* const storage = member("data/" + std::string(tensor.storage));
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
    TensorInfo info{std::string(name), std::string(tensor.type), tensor.shape, 0};
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
Result<bool> TorchFile::add_dictionary(const pickle::Group& dictionary) {
    bool any = false;
    for (std::size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
        const auto* const name = std::get_if<std::string_view>(&dictionary.items[i]);
        const auto* const tensor = std::get_if<pickle::TensorPtr>(&dictionary.items[i + 1]);
        if (name == nullptr || tensor == nullptr) continue;
        DS_TRY(add_tensor(*name, **tensor));
        any = true;
    }
    return any;
}

/// Reads a list of token ids, the format of FR-Spec's rankings.
bool TorchFile::add_numbers(const pickle::Group& list) {
    for (const pickle::Value& item : list.items) {
        const auto* const number = std::get_if<std::int64_t>(&item);
        if (number == nullptr) return false;
        numbers_.push_back(*number);
    }
    if (numbers_.empty()) return false;
    TensorInfo info{"ids", "I64", {static_cast<std::int64_t>(numbers_.size())}, numbers_.size() * 8};
    return add(std::move(info), *find_data_type("I64"),
               reinterpret_cast<const std::uint8_t*>(numbers_.data()));
}

Status TorchFile::read() {
    DS_ASSIGN(members_, read_zip(file()));
    DS_TRY(find_prefix());
    DS_ASSIGN(const pickle::Document document, pickle::read(*member("data.pkl"), path()));
    if (const auto* const tensor = std::get_if<pickle::TensorPtr>(&document.root))
        return add_tensor("ids", **tensor);
    const pickle::Group* const list = as_group(document.root, pickle::Group::Kind::list);
    if (list != nullptr && add_numbers(*list)) return {};
    if (const auto* const root = as_group(document.root, pickle::Group::Kind::dictionary)) {
        for (std::size_t i = 0; i + 1 < root->items.size(); i += 2) {
            // Trainers wrap the state dict: {"state_dict": {...}, "epoch": 3, ...}.
            const auto* const key = std::get_if<std::string_view>(&root->items[i]);
            const auto* const inner = as_group(root->items[i + 1], pickle::Group::Kind::dictionary);
            const bool wrapper =
                key != nullptr && (*key == "state_dict" || *key == "model" || *key == "module");
            if (!wrapper || inner == nullptr) continue;
            DS_ASSIGN(const bool any, add_dictionary(*inner));
            if (any) return {};
        }
        DS_ASSIGN(const bool any, add_dictionary(*root));
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
