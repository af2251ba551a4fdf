#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/model/dequant.h"
#include "engine/model/mapped_file.h"
#include "engine/model/weight_source.h"

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

/// One metadata entry, still in the file's bytes; its extent has been checked.
struct GgufValue {
    GgufType type = GgufType::u32;  ///< of the elements when it is an array
    bool is_array = false;
    std::uint64_t count = 1;                ///< elements
    std::span<const std::uint8_t> payload;  ///< of all elements, string lengths included
};

struct GgufTensor {
    TensorInfo info;
    const TensorType* type = nullptr;    ///< always one with a decoder
    const std::uint8_t* data = nullptr;  ///< info.bytes bytes inside the mapping, maybe unaligned
};

/// Container of GGUF version 3 (ggml's model format): metadata and tensors, every length, count and offset
/// checked against the file before use. Typed readers give nothing when a key is absent, and an error that
/// names file and key when it holds something else.
class GgufFile {
  public:
    static Result<GgufFile> open(const std::string& path);

    const std::string& path() const { return file_->path(); }
    const MappedFile& mapped() const { return *file_; }
    const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }
    bool has(std::string_view key) const { return values_.find(key) != values_.end(); }

    Result<std::optional<std::string>> text(std::string_view key) const;
    /// Any integer width; an array counts when all its elements are equal (per-layer lists of even models).
    Result<std::optional<std::int64_t>> integer(std::string_view key) const;
    Result<std::optional<double>> number(std::string_view key) const;
    Result<std::optional<bool>> boolean(std::string_view key) const;
    Result<std::optional<std::vector<std::string>>> texts(std::string_view key) const;
    Result<std::optional<std::vector<std::int64_t>>> integers(std::string_view key) const;
    /// An array of f32.
    Result<std::optional<std::vector<float>>> floats(std::string_view key) const;

  private:
    class Parser;

    const GgufValue* find(std::string_view key) const;

    std::shared_ptr<const MappedFile> file_;
    std::map<std::string, GgufValue, std::less<>> values_;
    std::map<std::string, GgufTensor, std::less<>> tensors_;
};

}  // namespace draftscope
