#include "engine/formats/zip_archive.h"

#include <algorithm>

// Layout: members, each after a local header; the central directory, one record per member; the end record.
// Its 64-bit form (PyTorch always writes it) is found through a locator directly before it.
namespace draftscope {
namespace {

constexpr std::uint32_t local_signature = 0x04034b50;
constexpr std::uint32_t member_signature = 0x02014b50;
constexpr std::uint32_t end64_signature = 0x06064b50;
constexpr std::uint32_t locator64_signature = 0x07064b50;
constexpr std::uint32_t in_64_bits = 0xffffffffu;

using Bytes = std::span<const std::uint8_t>;

/// Returns 0, which is no signature, past the end.
template <typename T>
T value_at(Bytes bytes, std::uint64_t offset) {
    if (offset > bytes.size()) return 0;
    return ByteCursor(bytes, static_cast<std::size_t>(offset)).read<T>().value_or(0);
}

struct Directory {
    std::uint64_t offset = 0;
    std::uint64_t members = 0;
};

/// The end record is at the end of the file, followed only by a comment of up to 64 KiB.
std::optional<Directory> find_directory(Bytes bytes) {
    constexpr std::size_t size = 22, max_comment = 0xffff;
    const std::size_t tail = bytes.size() - std::min(bytes.size(), size + max_comment);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + tail, bytes.size() - tail);
    const std::size_t found = text.size() < size ? text.npos : text.rfind("PK\5\6", text.size() - size);
    if (found == text.npos) return std::nullopt;
    const std::uint64_t end = tail + found;
    const Directory directory{value_at<std::uint32_t>(bytes, end + 16),
                              value_at<std::uint16_t>(bytes, end + 10)};
    const bool is_large = directory.offset == in_64_bits || directory.members == 0xffff;
    if (!is_large || value_at<std::uint32_t>(bytes, end - 20) != locator64_signature) return directory;
    const auto end64 = value_at<std::uint64_t>(bytes, end - 12);
    if (value_at<std::uint32_t>(bytes, end64) != end64_signature) return std::nullopt;
    return Directory{value_at<std::uint64_t>(bytes, end64 + 48), value_at<std::uint64_t>(bytes, end64 + 32)};
}

/// A record of the central directory.
struct Member {
    std::string name;
    std::uint64_t stored = 0, size = 0, header = 0;
};

/// The extra field of a record holds, in this order, the values that do not fit into 32 bits.
void read_large(Bytes extra, Member& member) {
    ByteCursor cursor(extra);
    while (cursor.remaining() >= 4) {
        const auto id = *cursor.read<std::uint16_t>(), length = *cursor.read<std::uint16_t>();
        for (std::uint64_t* value : {&member.size, &member.stored, &member.header}) {
            if (id == 1 && *value == in_64_bits) *value = cursor.read<std::uint64_t>().value_or(in_64_bits);
        }
        if (id == 1 || !cursor.skip(length)) return;
    }
}

}  // namespace

Result<ZipMembers> read_zip(const MappedFile& file) {
    const Bytes bytes = file.bytes();
    const auto directory = find_directory(bytes);
    if (!directory)
        return bad_input("{}: the archive has no directory; the file is truncated, fetch it again",
                         file.path());
    ZipMembers out;
    std::uint64_t position = directory->offset;
    for (std::uint64_t i = 0; i < directory->members; ++i) {
        const std::size_t name = value_at<std::uint16_t>(bytes, position + 28),
                          extra = value_at<std::uint16_t>(bytes, position + 30),
                          length = 46 + name + extra + value_at<std::uint16_t>(bytes, position + 32);
        if (value_at<std::uint32_t>(bytes, position) != member_signature || bytes.size() - position < length)
            return bad_input("{}: the archive's directory is damaged at member {}", file.path(), i + 1);
        const Bytes texts = bytes.subspan(position + 46, name + extra);
        Member member{{texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(name)},
                      value_at<std::uint32_t>(bytes, position + 20),
                      value_at<std::uint32_t>(bytes, position + 24),
                      value_at<std::uint32_t>(bytes, position + 42)};
        read_large(texts.subspan(name), member);
        const bool is_plain =
            value_at<std::uint16_t>(bytes, position + 10) == 0 && member.stored == member.size;
        position += length;
        if (member.name.ends_with('/')) continue;
        if (!is_plain) {
            return bad_input("{}: member '{}' is compressed; torch.save stores members uncompressed",
                             file.path(), printable(member.name));
        }
        // The bytes follow a local header, whose name and extra field have their own lengths.
        const std::uint64_t begin = member.header + 30 + value_at<std::uint16_t>(bytes, member.header + 26) +
                                    value_at<std::uint16_t>(bytes, member.header + 28);
        if (value_at<std::uint32_t>(bytes, member.header) != local_signature || begin > bytes.size() ||
            member.size > bytes.size() - begin) {
            return bad_input(
                "{}: member '{}' of {} bytes is not in the file; it is truncated, fetch it again",
                file.path(), printable(member.name), member.size);
        }
        out.emplace(member.name, bytes.subspan(begin, member.size));
    }
    return out;
}

}  // namespace draftscope
