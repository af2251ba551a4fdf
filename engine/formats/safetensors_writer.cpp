#include "engine/formats/safetensors_writer.h"

#include <unistd.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/formats/dequant.h"

namespace draftscope {
namespace {

Status write_all(const std::string& path, const std::string& header, std::span<const TensorToSave> tensors) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    const std::uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header;
    for (const TensorToSave& tensor : tensors)
        file.write(reinterpret_cast<const char*>(tensor.data.data()),
                   static_cast<std::streamsize>(tensor.data.size()));
    file.close();
    if (!file) return failed("{}: cannot be written; is the disk full?", path);
    return {};
}

}  // namespace

Status save_safetensors(const std::string& path, std::span<const TensorToSave> tensors,
                        const std::map<std::string, std::string>& metadata) {
    nlohmann::ordered_json header;
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::uint64_t offset = 0;
    for (const TensorToSave& tensor : tensors) {
        const TensorType* type = find_plain_type(tensor.type);
        if (type == nullptr)
            return failed("{}: tensor '{}' has unknown type {}", path, tensor.name, tensor.type);
        const auto needed = stored_bytes(*type, tensor.shape);
        if (!needed || *needed != tensor.data.size())
            return failed("{}: tensor '{}' has {} bytes, which do not fill its shape", path, tensor.name,
                          tensor.data.size());
        if (header.contains(tensor.name)) return failed("{}: tensor '{}' twice", path, tensor.name);
        header[tensor.name] = {
            {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + *needed}}};
        offset += *needed;
    }
    std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::string unfinished = path + ".part" + std::to_string(::getpid());
    const Status written = write_all(unfinished, text, tensors);
    std::error_code error;
    if (written.ok()) std::filesystem::rename(unfinished, path, error);
    if (written.ok() && !error) return {};
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    if (!written.ok()) return written.error();
    return failed("{}: cannot be written: {}", path, error.message());
}

}  // namespace draftscope
