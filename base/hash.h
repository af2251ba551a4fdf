#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace draftscope {

inline constexpr std::uint64_t fnv1a_start = 0xcbf29ce484222325u;

/// Returns the 64-bit FNV-1a hash. It identifies files and prompts; it is not cryptographic. Pass the hash of
/// an earlier piece as `hash` to continue it.
inline std::uint64_t fnv1a(std::span<const std::byte> bytes, std::uint64_t hash = fnv1a_start) {
    for (const std::byte b : bytes) hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x100000001b3u;
    return hash;
}
inline std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = fnv1a_start) {
    return fnv1a(std::as_bytes(std::span(text)), hash);
}
/// Returns a hash of a file's size and of 64 samples of it, or of a small one's whole contents.
inline std::uint64_t sampled_hash(std::span<const std::byte> bytes) {
    constexpr std::size_t piece = 4096, pieces = 64;
    std::uint64_t hash = fnv1a(std::to_string(bytes.size()));
    if (bytes.size() <= piece * pieces) return fnv1a(bytes, hash);
    for (std::size_t i = 0; i < pieces; ++i)
        hash = fnv1a(bytes.subspan((bytes.size() - piece) * i / (pieces - 1), piece), hash);
    return hash;
}

}  // namespace draftscope
