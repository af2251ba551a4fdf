#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/formats/dequant.h"
#include "engine/formats/weight_source.h"

namespace draftscope {

enum class GgufType : std::uint32_t {
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    array,
    u64,
    i64,
    f64,
};

/// A metadata entry whose payload is still encoded; its extent has been checked.
struct GgufValue {
    GgufType type = GgufType::u32;  ///< element type if it is an array
    bool is_array = false;
    std::uint64_t count = 1;                ///< elements
    std::span<const std::uint8_t> payload;  ///< of all elements, string lengths included
};

struct GgufTensor {
    TensorInfo info;
    const TensorType* type = nullptr;    ///< never null; always has a decoder
    const std::uint8_t* data = nullptr;  ///< info.bytes bytes inside the mapping, possibly unaligned
};

/// A GGUF version 3 file (ggml's model format): metadata and tensors. Every length, count and offset is
/// checked against the file before use. Typed readers return nullopt if a key is absent. If the value has
/// another type, they return an error that names file and key.
class GgufFile {
  public:
    static Result<GgufFile> open(const std::string& path);

    const std::string& path() const { return file_->path(); }
    const MappedFile& mapped() const { return *file_; }
    const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }
    bool has(std::string_view key) const { return values_.find(key) != values_.end(); }

    Result<std::optional<std::string>> text(std::string_view key) const;
    /// Reads an integer of any width, or an array whose elements are all equal (per-layer lists of uniform
    /// models).
    Result<std::optional<std::int64_t>> integer(std::string_view key) const;
    Result<std::optional<double>> number(std::string_view key) const;
    Result<std::optional<bool>> boolean(std::string_view key) const;
    Result<std::optional<std::vector<std::string>>> texts(std::string_view key) const;
    Result<std::optional<std::vector<std::int64_t>>> integers(std::string_view key) const;
    /// Reads an array of f32.
    Result<std::optional<std::vector<float>>> floats(std::string_view key) const;

  private:
    class Parser;

    const GgufValue* find(std::string_view key) const;

    std::shared_ptr<const MappedFile> file_;
    std::map<std::string, GgufValue, std::less<>> values_;
    std::map<std::string, GgufTensor, std::less<>> tensors_;
};

}  // namespace draftscope
