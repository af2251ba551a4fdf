#include "engine/formats/zip_archive.h"

#include <algorithm>

// Layout: members, each after a local header; the central directory, one record per member; the end record.
// Its 64-bit form (PyTorch always writes it) is found through a locator directly before it.
namespace draftscope {
namespace {

constexpr std::uint32_t local_signature = 0x04034b50;
constexpr std::uint32_t member_signature = 0x02014b50;
constexpr std::uint32_t end_signature = 0x06054b50;
constexpr std::uint32_t end64_signature = 0x06064b50;
constexpr std::uint32_t locator64_signature = 0x07064b50;
constexpr std::uint64_t end_size = 22;
constexpr std::uint64_t locator64_size = 20;
constexpr std::uint32_t in_64_bits = 0xffffffffu;

using Bytes = std::span<const std::uint8_t>;

template <typename T>
std::optional<T> value_at(Bytes bytes, std::uint64_t offset) {
    if (offset > bytes.size()) return std::nullopt;
    return ByteCursor(bytes, static_cast<std::size_t>(offset)).read<T>();
}

struct Directory {
    std::uint64_t offset = 0;
    std::uint64_t members = 0;
};

/// The end record is at the end of the file, followed only by a comment of up to 64 KiB.
std::optional<std::uint64_t> find_end(Bytes bytes) {
    if (bytes.size() < end_size) return std::nullopt;
    const std::uint64_t last = bytes.size() - end_size;
    for (std::uint64_t back = 0; back <= std::min<std::uint64_t>(last, 0xffff); ++back) {
        if (value_at<std::uint32_t>(bytes, last - back) == end_signature) return last - back;
    }
    return std::nullopt;
}

std::optional<Directory> find_directory(Bytes bytes) {
    const auto end = find_end(bytes);
    if (!end) return std::nullopt;
    Directory directory{*value_at<std::uint32_t>(bytes, *end + 16),
                        *value_at<std::uint16_t>(bytes, *end + 10)};
    if (directory.offset != in_64_bits && directory.members != 0xffff) return directory;
    if (*end < locator64_size) return std::nullopt;
    const std::uint64_t locator = *end - locator64_size;
    if (value_at<std::uint32_t>(bytes, locator) != locator64_signature) return directory;
    const auto end64 = value_at<std::uint64_t>(bytes, locator + 8);
    if (!end64 || *end64 > bytes.size() || value_at<std::uint32_t>(bytes, *end64) != end64_signature)
        return std::nullopt;
    const auto members = value_at<std::uint64_t>(bytes, *end64 + 32);
    const auto offset = value_at<std::uint64_t>(bytes, *end64 + 48);
    if (!members || !offset) return std::nullopt;
    return Directory{*offset, *members};
}

/// A record of the central directory.
struct Member {
    std::string name;
    std::uint16_t method = 0;
    std::uint64_t stored = 0, size = 0, header = 0;
};

/// The extra field of a record holds, in this order, the values that do not fit into 32 bits.
bool read_large(Bytes extra, Member& member) {
    ByteCursor cursor(extra);
    while (cursor.remaining() >= 4) {
        const std::uint16_t id = *cursor.read<std::uint16_t>(), length = *cursor.read<std::uint16_t>();
        if (id != 1) {
            if (!cursor.skip(length)) return false;
            continue;
        }
        for (std::uint64_t* value : {&member.size, &member.stored, &member.header}) {
            if (*value != in_64_bits) continue;
            const auto large = cursor.read<std::uint64_t>();
            if (!large) return false;
            *value = *large;
        }
        return true;
    }
    return true;
}

std::optional<Member> read_member(Bytes bytes, std::uint64_t& position) {
    const auto signature = value_at<std::uint32_t>(bytes, position);
    if (signature != member_signature || bytes.size() - position < 46) return std::nullopt;
    Member member;
    member.method = *value_at<std::uint16_t>(bytes, position + 10);
    member.stored = *value_at<std::uint32_t>(bytes, position + 20);
    member.size = *value_at<std::uint32_t>(bytes, position + 24);
    const std::uint16_t name = *value_at<std::uint16_t>(bytes, position + 28);
    const std::uint16_t extra = *value_at<std::uint16_t>(bytes, position + 30);
    const std::uint16_t comment = *value_at<std::uint16_t>(bytes, position + 32);
    member.header = *value_at<std::uint32_t>(bytes, position + 42);
    const std::uint64_t length = 46ull + name + extra + comment;
    if (bytes.size() - position < length) return std::nullopt;
    const auto begin = static_cast<std::size_t>(position) + 46;
    member.name.assign(reinterpret_cast<const char*>(bytes.data() + begin), name);
    if (!read_large(bytes.subspan(begin + name, extra), member)) return std::nullopt;
    position += length;
    return member;
}

/// Returns the member's bytes, which follow its local header; that header's name and extra field have their
/// own lengths.
std::optional<Bytes> content(Bytes bytes, const Member& member) {
    if (value_at<std::uint32_t>(bytes, member.header) != local_signature) return std::nullopt;
    const auto name = value_at<std::uint16_t>(bytes, member.header + 26);
    const auto extra = value_at<std::uint16_t>(bytes, member.header + 28);
    if (!name || !extra) return std::nullopt;
    const std::uint64_t begin = member.header + 30 + *name + *extra;
    if (begin > bytes.size() || member.size > bytes.size() - begin) return std::nullopt;
    return bytes.subspan(begin, member.size);
}

}  // namespace

Result<ZipArchive> ZipArchive::open(const MappedFile& file) {
    const Bytes bytes = file.bytes();
    const auto directory = find_directory(bytes);
    if (!directory)
        return bad_input("{}: the archive has no directory; the file is truncated, fetch it again",
                         file.path());
    ZipArchive out;
    std::uint64_t position = directory->offset;
    for (std::uint64_t i = 0; i < directory->members; ++i) {
        const auto member = read_member(bytes, position);
        if (!member)
            return bad_input("{}: the archive's directory is damaged at member {}", file.path(), i + 1);
        if (member->name.ends_with('/')) continue;
        if (member->method != 0 || member->stored != member->size) {
            return bad_input("{}: member '{}' is compressed; torch.save stores members uncompressed",
                             file.path(), printable(member->name));
        }
        const auto data = content(bytes, *member);
        if (!data)
            return bad_input(
                "{}: member '{}' of {} bytes is not in the file; it is truncated, fetch it again",
                file.path(), printable(member->name), member->size);
        out.members_.emplace(member->name, *data);
    }
    return out;
}

const std::span<const std::uint8_t>* ZipArchive::find(std::string_view name) const {
    const auto found = members_.find(name);
    return found == members_.end() ? nullptr : &found->second;
}

}  // namespace draftscope
