#include "tests/support/gguf_writer.h"

#include <filesystem>
#include <fstream>

namespace draftscope::testing {
namespace {

constexpr std::size_t alignment = 32;

std::string raw_text(const std::string& text) {
    return raw_bytes<std::uint64_t>(text.size()) + text;
}

void pad(std::string& bytes) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
}

}  // namespace

void GgufWriter::add_raw(const std::string& key, std::uint32_t type, const std::string& value) {
    values_.push_back({key, raw_bytes(type) + value});
}

void GgufWriter::remove(const std::string& key) {
    std::erase_if(values_, [&](const Value& value) { return value.key == key; });
}

void GgufWriter::remove_tensor(const std::string& name) {
    std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
}

void GgufWriter::change_tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                               std::uint32_t type) {
    for (Tensor& tensor : tensors_) {
        if (tensor.name != name) continue;
        tensor.shape = shape;
        tensor.type = type;
    }
}

void GgufWriter::add(const std::string& key, std::uint32_t value) {
    add_raw(key, 4, raw_bytes(value));
}
void GgufWriter::add(const std::string& key, float value) {
    add_raw(key, 6, raw_bytes(value));
}
void GgufWriter::add(const std::string& key, bool value) {
    add_raw(key, 7, std::string(1, value ? '\1' : '\0'));
}
void GgufWriter::add(const std::string& key, const std::string& value) {
    add_raw(key, 8, raw_text(value));
}

void GgufWriter::add(const std::string& key, const std::vector<std::string>& values) {
    std::string raw = raw_bytes<std::uint32_t>(8) + raw_bytes<std::uint64_t>(values.size());
    for (const std::string& value : values) raw += raw_text(value);
    add_raw(key, 9, raw);
}

void GgufWriter::add(const std::string& key, const std::vector<std::int32_t>& values) {
    std::string raw = raw_bytes<std::uint32_t>(5) + raw_bytes<std::uint64_t>(values.size());
    for (const std::int32_t value : values) raw += raw_bytes(value);
    add_raw(key, 9, raw);
}

void GgufWriter::add(const std::string& key, const std::vector<float>& values) {
    std::string raw = raw_bytes<std::uint32_t>(6) + raw_bytes<std::uint64_t>(values.size());
    for (const float value : values) raw += raw_bytes(value);
    add_raw(key, 9, raw);
}

void GgufWriter::add_tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                            std::uint32_t type, std::string data) {
    tensors_.push_back({name, shape, type, std::move(data)});
}

std::string GgufWriter::bytes() const {
    std::string out = "GGUF" + raw_bytes<std::uint32_t>(3) + raw_bytes<std::uint64_t>(tensors_.size()) +
                      raw_bytes<std::uint64_t>(values_.size());
    for (const Value& value : values_) out += raw_text(value.key) + value.raw;
    std::string data;
    for (const Tensor& tensor : tensors_) {
        out += raw_text(tensor.name) + raw_bytes(static_cast<std::uint32_t>(tensor.shape.size()));
        for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent)
            out += raw_bytes(static_cast<std::uint64_t>(*extent));
        out += raw_bytes(tensor.type) + raw_bytes<std::uint64_t>(data.size());
        data += tensor.data;
        pad(data);
    }
    pad(out);
    return out + data;
}

Status GgufWriter::write(const std::string& path) const {
    return write_file(path, bytes());
}

Status write_file(const std::string& path, const std::string& bytes) {
    // Removed first, because some file systems wait for the disk when a file is overwritten.
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.flush();
    if (!out) return failed("{}: {} bytes could not be written", path, bytes.size());
    return {};
}

}  // namespace draftscope::testing
