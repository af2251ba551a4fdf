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
#include "base/notes.h"
#include "base/result.h"
#include "engine/formats/model_config.h"
#include "engine/formats/tensor_file.h"

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
    f64
};

/// A metadata entry whose payload is still encoded; its extent has been checked.
struct GgufValue {
    GgufType type = GgufType::u32;  ///< element type if it is an array
    bool is_array = false;
    std::uint64_t count = 1;                ///< elements
    std::span<const std::uint8_t> payload;  ///< of all elements, string lengths included
};

/// A GGUF file of version 2 or 3 (ggml's model format): metadata and tensors. Every length, count and offset
/// is checked against the file before use. Typed readers return nullopt if a key is absent. If the value has
/// another type, they return an error that names file and key.
class GgufFile {
  public:
    /// Opens the other parts of a split file, too, if `path` is the first.
    static Result<GgufFile> open(const std::string& path);
    /// Opens a file as far as it can be read, and adds what open() would refuse to `problems`. Tensors beyond
    /// the file's end have no stored(); those of types without a decoder are listed.
    static Result<GgufFile> open_damaged(const std::string& path, Notes& problems);

    const std::string& path() const { return file_->path(); }
    /// The values below `prefix`, without it: numbers, texts and booleans; for an array, its description.
    nlohmann::json values_below(std::string_view prefix) const;
    /// The tensors as the file stores them, and the files of all parts.
    const TensorFile& tensors() const { return tensors_; }
    TensorFile& tensors() { return tensors_; }
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

    explicit GgufFile(std::shared_ptr<const MappedFile> file) : file_(file), tensors_(std::move(file)) {}
    static Result<GgufFile> open_part(const std::string& path, bool tolerant = false);
    Status add_part(const GgufFile& part);
    /// Reads the value of `key` by `decode` if it is what `matches` says; else an error names `expected`.
    template <typename T, typename Matches, typename Decode>
    Result<std::optional<T>> read(std::string_view key, std::string_view expected, Matches matches,
                                  Decode decode) const;

    std::shared_ptr<const MappedFile> file_;  ///< the first part, which holds the metadata
    std::map<std::string, GgufValue, std::less<>> values_;
    TensorFile tensors_;
};

/// The sizes and constants behind one prefix of the keys, "llama".
class GgufKeys {
  public:
    GgufKeys(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

    std::string key(std::string_view field) const { return prefix_ + "." + std::string(field); }
    Result<std::optional<int>> optional(std::string_view field, std::int64_t max_value = max_extent) const;
    Result<int> required(std::string_view field, std::int64_t max_value = max_extent) const;
    Result<std::optional<double>> positive(std::string_view field) const;
    Error missing(std::string_view field) const;

  private:
    const GgufFile& file_;
    std::string prefix_;
};

/// Returns the files of a model by the name of the first, "x-00001-of-00003.gguf"; else `path` alone.
std::vector<std::string> gguf_parts(const std::string& path);
/// Returns `path` without ".gguf" and without the number of a part.
std::string gguf_stem(const std::string& path);

}  // namespace draftscope
