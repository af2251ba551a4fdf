#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
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

/// A GGUF file of version 2 or 3 (ggml's model format): metadata and tensors. Every length, count and offset
/// is checked against the file before use. Typed readers return nullopt if a key is absent. If the value has
/// another type, they return an error that names file and key.
class GgufFile {
  public:
    /// Opens the other parts of a split file, too, if `path` is the first.
    static Result<GgufFile> open(const std::string& path);

    const std::string& path() const { return files_.front()->path(); }
    std::vector<const MappedFile*> files() const;  ///< one per part
    /// The values below `prefix`, without it: numbers, texts and booleans; for an array, its description.
    nlohmann::json values_below(std::string_view prefix) const;
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

    std::span<const std::uint8_t> bytes() const { return files_.front()->bytes(); }

    const GgufValue* find(std::string_view key) const;

    static Result<GgufFile> open_part(const std::string& path);
    Status add_part(GgufFile part);

    std::vector<std::shared_ptr<const MappedFile>> files_;
    std::map<std::string, GgufValue, std::less<>> values_;
    std::map<std::string, GgufTensor, std::less<>> tensors_;
};

/// Returns the files of a model by the name of the first, "x-00001-of-00003.gguf"; else `path` alone.
std::vector<std::string> gguf_parts(const std::string& path);
/// Returns `path` without ".gguf" and without the number of a part.
std::string gguf_stem(const std::string& path);

}  // namespace draftscope
