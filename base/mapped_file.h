#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace draftscope {

static_assert(std::is_same_v<unsigned char, std::uint8_t>);

/// A read-only memory mapping of a complete file. Pages are read from disk on first access.
class MappedFile {
  public:
    /// `kind` names the expected file in error messages ("a GGUF file"). A missing file, a folder, a pipe and
    /// an empty file are errors (bad input).
    static Result<std::shared_ptr<const MappedFile>> open(const std::string& path, std::string_view kind);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    const std::string& path() const { return path_; }
    std::span<const std::uint8_t> bytes() const { return bytes_; }

  private:
    MappedFile(std::string path, std::span<const std::uint8_t> bytes)
        : path_(std::move(path)), bytes_(bytes) {}

    std::string path_;
    std::span<const std::uint8_t> bytes_;
};

/// Reads consecutive little-endian values, never past the end. A read that does not fit returns nullopt and
/// leaves the position unchanged.
class ByteCursor {
  public:
    explicit ByteCursor(std::span<const std::uint8_t> bytes, std::size_t position = 0)
        : bytes_(bytes), position_(position) {}

    std::size_t position() const { return position_; }
    std::size_t remaining() const { return bytes_.size() - position_; }

    template <typename T>
    std::optional<T> read() {
        static_assert(std::is_arithmetic_v<T>);
        if (remaining() < sizeof(T)) return std::nullopt;
        T value;
        std::memcpy(&value, bytes_.data() + position_, sizeof(T));
        position_ += sizeof(T);
        return value;
    }
    std::optional<std::string_view> read_text(std::uint64_t length) {
        if (length > remaining()) return std::nullopt;
        const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + position_),
                                    static_cast<std::size_t>(length));
        position_ += static_cast<std::size_t>(length);
        return text;
    }
    bool skip(std::uint64_t length) { return read_text(length).has_value(); }

  private:
    std::span<const std::uint8_t> bytes_;
    std::size_t position_;
};

/// Checked a * b and a + b of sizes from a file; nullopt on overflow.
inline std::optional<std::uint64_t> checked_product(std::uint64_t a, std::uint64_t b) {
    std::uint64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
    return result;
}
inline std::optional<std::uint64_t> checked_sum(std::uint64_t a, std::uint64_t b) {
    std::uint64_t result = 0;
    if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
    return result;
}

/// Formats text from a file for a message: short, one line, no control characters.
std::string printable(std::string_view text);
/// Returns an error if `start`, the first bytes of a file, are those of a git-lfs pointer.
Status check_no_lfs_pointer(const std::string& path, std::string_view start);

}  // namespace draftscope
