#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/formats/pickle.h"
#include "engine/formats/tensor_file.h"

// Layout (torch.save since 1.6): a zip archive of stored members NAME/data.pkl, NAME/byteorder,
// NAME/data/KEY per storage; the pickle describes tensors as views of storages.
// The archive: members, each after a local header; the central directory, one record per member; the end
// record. Its 64-bit form (PyTorch always writes it) is found through a locator directly before it.
namespace draftscope {
namespace {

/// The uncompressed members of a zip archive by name, as PyTorch writes them.
using ZipMembers = std::map<std::string, std::span<const std::uint8_t>, std::less<>>;

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

/// Every offset and size is checked against the file; a compressed member is an error.
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

class TorchReader {
  public:
    explicit TorchReader(TensorFile& out) : out_(out) {}

    Status read();

  private:
    Status find_prefix();
    Result<bool> add_dictionary(const pickle::Group& dictionary);
    Status add_tensor(std::string_view name, const pickle::Tensor& tensor);
    bool add_numbers(const pickle::Group& list);
    const Bytes* member(std::string_view name) const {
        const auto found = members_.find(prefix_ + std::string(name));
        return found == members_.end() ? nullptr : &found->second;
    }
    const std::string& path() const { return out_.path(); }

    TensorFile& out_;
    ZipMembers members_;
    std::string prefix_;
};

Status TorchReader::find_prefix() {
    constexpr std::string_view pickle = "data.pkl";
    for (const auto& [name, data] : members_) {
        const std::size_t folder = name.find('/') + 1;
        if (folder == 0 || name.substr(folder) != pickle) continue;
        prefix_ = name.substr(0, folder);
        const auto* const order = member("byteorder");
        if (order == nullptr) return {};
        const std::string_view text(reinterpret_cast<const char*>(order->data()), order->size());
        if (text == "little") return {};
        return bad_input("{}: byteorder is '{}', expected little-endian", path(), printable(text));
    }
    return bad_input("{}: is a zip archive without data.pkl, not a PyTorch checkpoint", path());
}

/// Whether the strides are row-major; strides of extents of 1 are ignored.
bool is_row_major(const pickle::Tensor& tensor) {
    std::int64_t expected = 1;
    for (std::size_t i = tensor.shape.size(); i-- > 0;) {
        if (tensor.shape[i] == 0) return true;
        if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
        if (__builtin_mul_overflow(expected, tensor.shape[i], &expected)) return false;
    }
    return true;
}

Status TorchReader::add_tensor(std::string_view name, const pickle::Tensor& tensor) {
    const std::string shown = printable(name);
    const auto* const storage = member("data/" + std::string(tensor.storage));
    if (storage == nullptr)
        return bad_input("{}: storage '{}' of tensor '{}' is missing; the file is damaged", path(),
                         printable(tensor.storage), shown);
    if (!is_row_major(tensor)) {
        return bad_input(
            "{}: tensor '{}' has strides [{}], but only row-major tensors are supported; save it with "
            ".contiguous()",
            path(), shown, fmt::join(tensor.strides, ", "));
    }
    const TensorType& type = *find_plain_type(tensor.type);
    TensorInfo info{std::string(name), std::string(tensor.type), tensor.shape, 0};
    const auto bytes = stored_bytes(type, info.shape);
    if (info.shape.empty()) info.shape.push_back(1);
    const auto skipped = checked_product(static_cast<std::uint64_t>(tensor.offset), type.block_bytes);
    if (!bytes || !skipped || *skipped > storage->size() || *bytes > storage->size() - *skipped) {
        return bad_input("{}: tensor '{}' of shape [{}] does not fit its storage of {} bytes", path(), shown,
                         fmt::join(tensor.shape, ", "), storage->size());
    }
    info.bytes = *bytes;
    if (out_.add({std::move(info), &type, storage->data() + *skipped, out_.files().front()}) == nullptr)
        return bad_input("{}: tensor '{}' appears twice", path(), shown);
    return {};
}

/// Adds the tensors of a dictionary; returns false if it has none.
Result<bool> TorchReader::add_dictionary(const pickle::Group& dictionary) {
    bool any = false;
    for (std::size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
        const auto* const name = std::get_if<std::string_view>(&dictionary.items[i]);
        const auto* const tensor = std::get_if<pickle::TensorPtr>(&dictionary.items[i + 1]);
        if (name == nullptr || tensor == nullptr) continue;
        DS_TRY(add_tensor(*name, **tensor));
        any = true;
    }
    return any;
}

/// Reads a list of token ids, the format of FR-Spec's rankings.
bool TorchReader::add_numbers(const pickle::Group& list) {
    std::vector<std::int64_t> numbers;
    for (const pickle::Value& item : list.items) {
        const auto* const number = std::get_if<std::int64_t>(&item);
        if (number == nullptr) return false;
        numbers.push_back(*number);
    }
    if (!numbers.empty()) out_.add_integers("ids", std::move(numbers));
    return !list.items.empty();
}

Status TorchReader::read() {
    DS_ASSIGN(members_, read_zip(*out_.files().front()));
    DS_TRY(find_prefix());
    DS_ASSIGN(const pickle::Document document, pickle::read(*member("data.pkl"), path()));
    if (const auto* const tensor = std::get_if<pickle::TensorPtr>(&document.root))
        return add_tensor("ids", **tensor);
    const pickle::Group* const list = as_group(document.root, pickle::Group::Kind::list);
    if (list != nullptr && add_numbers(*list)) return {};
    if (const auto* const root = as_group(document.root, pickle::Group::Kind::dictionary)) {
        for (std::size_t i = 0; i + 1 < root->items.size(); i += 2) {
            // Trainers wrap the state dict: {"state_dict": {...}, "epoch": 3, ...}.
            const auto* const key = std::get_if<std::string_view>(&root->items[i]);
            const auto* const inner = as_group(root->items[i + 1], pickle::Group::Kind::dictionary);
            const bool wrapper =
                key != nullptr && (*key == "state_dict" || *key == "model" || *key == "module");
            if (!wrapper || inner == nullptr) continue;
            DS_ASSIGN(const bool any, add_dictionary(*inner));
            if (any) return {};
        }
        DS_ASSIGN(const bool any, add_dictionary(*root));
        if (any) return {};
    }
    return bad_input("{}: holds neither a dictionary of tensors nor a list of token ids", path());
}

}  // namespace

Status read_torch_file(TensorFile& out) {
    return TorchReader(out).read();
}

}  // namespace draftscope
