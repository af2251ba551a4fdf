#include "engine/formats/tensor_file.h"

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <utility>

#include "base/json_file.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view index_end = ".index.json";

/// Returns the stored index of a half-split projection's row if the file interleaves the halves of each head:
/// (head, half s, j) is stored as (head, 2j + s).
std::int64_t interleaved_row(std::int64_t row, int head_dim) {
    const std::int64_t in_head = row % head_dim;
    const std::int64_t half = head_dim / 2;
    return row - in_head + 2 * (in_head % half) + in_head / half;
}

template <typename Read>
Result<std::unique_ptr<TensorFile>> read_file(std::shared_ptr<const MappedFile> file, Read read) {
    auto out = std::make_unique<TensorFile>(std::move(file));
    DS_TRY(read(*out));
    return out;
}

Result<std::unique_ptr<TensorFile>> open_file(const std::string& path, bool tolerant = false) {
    DS_ASSIGN(auto file, MappedFile::open(path, "a file of tensors"));
    const auto bytes = file->bytes();
    const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                                 std::min<std::size_t>(bytes.size(), 4));
    if (start == "PK\x03\x04") return read_file(std::move(file), read_torch_file);
    // A bare pickle, written by torch.save before version 1.6.
    if (start.starts_with("\x80\x02") && bytes.size() > 2 && bytes[2] == 0x8a) {
        return bad_input(
            "{}: was saved by a PyTorch older than 1.6, which this version does not read; convert it: python "
            "-c \"import torch, safetensors.torch as s; s.save_file(torch.load('{}', weights_only=True), "
            "'model.safetensors')\"",
            path, path);
    }
    return read_file(std::move(file), [&](TensorFile& out) { return read_safetensors(out, tolerant); });
}

Result<std::unique_ptr<WeightSource>> as_source(Result<std::unique_ptr<TensorFile>> file) {
    if (!file.ok()) return file.error();
    return std::unique_ptr<WeightSource>(std::move(*file));
}

}  // namespace

Result<std::unique_ptr<WeightSource>> open_safetensors(const std::string& path) {
    DS_ASSIGN(auto file, MappedFile::open(path, "a safetensors file"));
    return as_source(read_file(std::move(file), [](TensorFile& out) { return read_safetensors(out); }));
}

Result<std::unique_ptr<WeightSource>> open_torch_file(const std::string& path) {
    DS_ASSIGN(auto file, MappedFile::open(path, "a PyTorch checkpoint"));
    return as_source(read_file(std::move(file), read_torch_file));
}

Result<std::unique_ptr<WeightSource>> open_tensor_file(const std::string& path) {
    return as_source(open_file(path));
}

std::string find_tensor_file(const std::string& folder, std::span<const std::string_view> names) {
    std::error_code ignored;
    for (const std::string_view end : {std::string_view(), index_end})
        for (const std::string_view name : names) {
            std::string file = (fs::path(folder) / name).string().append(end);
            if (fs::exists(file, ignored)) return file;
        }
    return {};
}

Status TensorFile::open(Notes& notes) {
    if (path_.ends_with(index_end)) return open_shards();
    DS_ASSIGN(const auto file, open_file(path_));
    *this = std::move(*file);
    const std::string index = path_ + std::string(index_end);
    std::error_code ignored;
    if (fs::exists(index, ignored))
        add_note(notes, "{}: is not used, since the folder holds {}, as in transformers", index,
                 fs::path(path_).filename().string());
    return {};
}

Status TensorFile::open_damaged(Notes& problems) {
    const Status complete = open(problems);
    if (complete.ok()) return complete;
    problems.push_back(complete.error().message);
    if (path_.ends_with(index_end)) return open_shards(&problems);
    auto file = open_file(path_, true);
    if (!file.ok()) return file.error();
    *this = std::move(**file);
    return {};
}

Status TensorFile::open_shards(Notes* problems) {
    DS_ASSIGN(const JsonFile index, JsonFile::read(path_, "a model's weights"));
    DS_ASSIGN(const auto map, index.object("weight_map"));
    if (!map) return index.field_error("weight_map", "an object of file names");
    const fs::path path(path_);
    std::map<std::string, std::unique_ptr<TensorFile>> opened;
    for (const auto& [name, value] : index.find("weight_map")->items()) {
        const std::string file = value.is_string() ? value.get<std::string>() : std::string();
        // Reject names outside the folder.
        if (file.empty() || file.find_first_of("/\\") != std::string::npos || file == "..")
            return bad_input(
                "{}: weight_map gives '{}' as file of tensor '{}', expected a name in the folder", path_,
                printable_json(value), printable(name));
        const auto [at, is_new] = opened.try_emplace(file);
        std::unique_ptr<TensorFile>& shard = at->second;
        if (is_new) {
            auto read = open_file((path.parent_path() / file).string(), problems != nullptr);
            if (!read.ok() && problems == nullptr) return read.error();
            if (read.ok()) share_files(**read);
            if (read.ok()) shard = std::move(*read);
        }
        const StoredTensor* tensor = shard == nullptr ? nullptr : shard->find_stored(name);
        if (tensor == nullptr && problems != nullptr) continue;
        if (tensor == nullptr)
            return bad_input("{}: tensor '{}' is missing, though {} says it is here", shard->path(),
                             printable(name), path.filename().string());
        add(*tensor);
    }
    return {};
}

StoredTensor* TensorFile::add(StoredTensor tensor) {
    std::string name = tensor.info.name;
    const auto [entry, added] = tensors_.emplace(std::move(name), std::move(tensor));
    return added ? &entry->second : nullptr;
}

void TensorFile::add_integers(std::string name, std::vector<std::int64_t> values) {
    const auto& stored = integers_.emplace_back(std::move(values));
    add({{std::move(name), "I64", {static_cast<std::int64_t>(stored.size())}, stored.size() * 8},
         find_plain_type("I64"),
         reinterpret_cast<const std::uint8_t*>(stored.data())});
}

const StoredTensor* TensorFile::find_stored(std::string_view name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
}

StoredTensor* TensorFile::find_stored(std::string_view name) {
    return const_cast<StoredTensor*>(std::as_const(*this).find_stored(name));
}

const TensorType* TensorFile::dominant_type() const {
    std::map<const TensorType*, std::uint64_t> counts;
    const TensorType* best = nullptr;
    for (const auto& [name, tensor] : tensors_) {
        std::uint64_t& values = counts[tensor.type];
        values += tensor.info.bytes / tensor.type->block_bytes * tensor.type->block_elements;
    }
    for (const auto& [type, count] : counts)
        if (best == nullptr || count > counts[best]) best = type;
    return best;
}

const TensorInfo* TensorFile::find(std::string_view name) const {
    const StoredTensor* tensor = find_stored(name);
    return tensor == nullptr ? nullptr : &tensor->info;
}

std::vector<std::string> TensorFile::names() const {
    std::vector<std::string> out;
    out.reserve(tensors_.size());
    for (const auto& [name, tensor] : tensors_) out.push_back(name);
    std::sort(out.begin(), out.end());
    return out;
}

void TensorFile::read_row(const TensorInfo& tensor, std::int64_t row, float* out) const {
    assert(row >= 0 && row < tensor.rows());
    const StoredTensor& stored = *find_stored(tensor.name);
    if (stored.data != nullptr)
        return stored.type->dequantise(row_of(stored, row), tensor.cols() / stored.type->block_elements, out);
    if (stored.random.spread == 0) return (void)std::fill_n(out, tensor.cols(), 1.0f);
    const int cols = static_cast<int>(tensor.cols());
    const std::uint32_t start = stored.random.start_of(static_cast<int>(row));
    for (int i = 0; i < cols; ++i) out[i] = stored.random.at(start, i);
}

bool TensorFile::read_int4_row(const TensorInfo& tensor, std::int64_t row,
                               const kernels::Int4Row& out) const {
    const StoredTensor& stored = *find_stored(tensor.name);
    return stored.data != nullptr && unpack_int4(*stored.type, row_of(stored, row), out);
}

std::optional<kernels::RandomValues> TensorFile::random_values(const TensorInfo& tensor) const {
    const StoredTensor& stored = *find_stored(tensor.name);
    if (stored.data != nullptr || stored.random.spread == 0) return std::nullopt;
    return stored.random;
}

Result<std::vector<std::int64_t>> TensorFile::read_integers(std::string_view name) const {
    const StoredTensor* tensor = find_stored(name);
    if (tensor == nullptr) return bad_input("{}: tensor '{}' is missing", path_, name);
    if (tensor->type->integers == nullptr)
        return bad_input("{}: tensor '{}' has type {}, expected integers", path_, name, tensor->info.type);
    std::vector<std::int64_t> out(static_cast<std::size_t>(tensor->info.bytes) / tensor->type->block_bytes);
    tensor->type->integers(tensor->data, static_cast<std::int64_t>(out.size()), out.data());
    return out;
}

std::string TensorFile::metadata(std::string_view key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? std::string() : found->second;
}

std::vector<const MappedFile*> TensorFile::files() const {
    std::vector<const MappedFile*> out;
    for (const auto& file : files_) out.push_back(file.get());
    return out;
}

std::span<const std::uint8_t> TensorFile::stored(const TensorInfo& tensor) const {
    const StoredTensor* stored = find_stored(tensor.name);
    if (stored == nullptr || stored->data == nullptr) return {};
    return {stored->data, static_cast<std::size_t>(stored->info.bytes)};
}

const std::uint8_t* TensorFile::stored_row(const TensorInfo& tensor, std::int64_t row) const {
    const StoredTensor* stored = find_stored(tensor.name);
    return stored == nullptr || stored->data == nullptr ? nullptr : row_of(*stored, row);
}

const std::uint8_t* TensorFile::row_of(const StoredTensor& tensor, std::int64_t row) {
    const std::int64_t blocks = tensor.info.cols() / tensor.type->block_elements;
    if (tensor.interleaved > 0) row = interleaved_row(row, tensor.interleaved);
    return tensor.data + row * blocks * tensor.type->block_bytes;
}

}  // namespace draftscope
