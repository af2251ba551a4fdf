#include <filesystem>
#include <map>

#include "base/json_file.h"
#include "base/mapped_file.h"
#include "engine/formats/tensor_file.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view index_end = ".index.json";

}  // namespace

std::string find_tensor_file(const std::string& folder, std::span<const std::string_view> names) {
    std::error_code ignored;
    for (const std::string_view end : {std::string_view(), index_end})
        for (const std::string_view name : names) {
            std::string file = (fs::path(folder) / name).string().append(end);
            if (fs::exists(file, ignored)) return file;
        }
    return {};
}

Result<const WeightSource*> TensorSet::open_file(const std::string& file) {
    DS_ASSIGN(auto source, open_tensor_file(file));
    return files_.emplace_back(std::move(source)).get();
}

Status TensorSet::open(Notes& notes) {
    if (path_.ends_with(index_end)) return open_shards();
    DS_ASSIGN(const WeightSource* const file, open_file(path_));
    for (const std::string& name : file->names()) {
        const TensorInfo* info = file->find(name);
        entries_.add(name, {*info, file, info});
    }
    const std::string index = path_ + std::string(index_end);
    std::error_code ignored;
    if (fs::exists(index, ignored))
        add_note(notes, "{}: is not used, since the folder holds {}, as in transformers", index,
                 fs::path(path_).filename().string());
    return {};
}

Status TensorSet::open_shards() {
    DS_ASSIGN(const JsonFile index, JsonFile::read(path_, "a model's weights"));
    DS_ASSIGN(const auto map, index.object("weight_map"));
    if (!map) return index.field_error("weight_map", "an object of file names");
    const fs::path path(path_);
    std::map<std::string, const WeightSource*> opened;
    for (const auto& [name, value] : index.find("weight_map")->items()) {
        const std::string file = value.is_string() ? value.get<std::string>() : std::string();
        // Reject names outside the folder.
        if (file.empty() || file.find_first_of("/\\") != std::string::npos || file == "..")
            return bad_input(
                "{}: weight_map gives '{}' as file of tensor '{}', expected a name in the folder", path_,
                printable_json(value), printable(name));
        const WeightSource*& shard = opened[file];
        if (shard == nullptr) {
            DS_ASSIGN(shard, open_file((path.parent_path() / file).string()));
        }
        const TensorInfo* info = shard->find(name);
        if (info == nullptr)
            return bad_input("{}: tensor '{}' is missing, though {} says it is here", shard->path(),
                             printable(name), path.filename().string());
        entries_.add(name, {*info, shard, info});
    }
    return {};
}

void TensorSet::add(std::string name, const TensorSet& from, std::string_view stored) {
    Entry entry = *from.entries_.find(stored);
    entry.info.name = name;
    if (files_.empty()) files_ = from.files_;
    entries_.add(std::move(name), std::move(entry));
}

const TensorInfo* TensorSet::find(std::string_view name) const {
    const Entry* entry = entries_.find(name);
    return entry == nullptr ? nullptr : &entry->info;
}

void TensorSet::read_row(const TensorInfo& tensor, std::int64_t row, float* out) const {
    const Entry& entry = *entries_.find(tensor.name);
    entry.file->read_row(*entry.stored, row, out);
}

Result<std::vector<std::int64_t>> TensorSet::read_integers(std::string_view name) const {
    const Entry* entry = entries_.find(name);
    if (entry == nullptr) return bad_input("{}: tensor '{}' is missing", path_, name);
    return entry->file->read_integers(entry->stored->name);
}

std::vector<const MappedFile*> TensorSet::files() const {
    std::vector<const MappedFile*> out;
    for (const auto& source : files_) {
        for (const MappedFile* file : source->files()) out.push_back(file);
    }
    return out;
}

std::span<const std::uint8_t> TensorSet::stored(const TensorInfo& tensor) const {
    const Entry* entry = entries_.find(tensor.name);
    if (entry == nullptr) return {};
    return entry->file->stored(*entry->stored);
}

const std::uint8_t* TensorSet::stored_row(const TensorInfo& tensor, std::int64_t row) const {
    const Entry* entry = entries_.find(tensor.name);
    return entry == nullptr ? nullptr : entry->file->stored_row(*entry->stored, row);
}

}  // namespace draftscope
