#include "engine/weights/weight_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <system_error>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/numel.h"
#include "base/parse.h"
#include "engine/formats/model_file.h"
#include "kernels/packing.h"

// Layout: safetensors, so that common tools can open it: u64 header length, JSON {name: {dtype U8, shape
// [bytes], data_offsets}}, data. __metadata__ identifies the source and describes each matrix's packing.
namespace draftscope {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

/// Increment whenever the packed matrices of a source change.
constexpr int format_version = 3;
constexpr std::uint64_t alignment = 4096;
constexpr std::uint64_t header_capacity = std::uint64_t{2} << 20;  ///< enough for 4096 layers
constexpr std::size_t summed_bytes = std::size_t{4} << 20;
constexpr std::uint64_t min_free_bytes = std::uint64_t{1} << 30;

std::string reason() {
    return std::generic_category().message(errno);
}

/// Eight parallel sums, at memory bandwidth. Each step is invertible, so every single change is detected.
std::uint64_t checksum(std::span<const std::byte> bytes) {
    constexpr std::uint64_t factor = 0x9e3779b97f4a7c15u;
    std::array<std::uint64_t, 8> sums{1, 2, 3, 4, 5, 6, 7, 8};
    std::size_t at = 0;
    for (; at + sizeof sums <= bytes.size(); at += sizeof sums) {
        std::array<std::uint64_t, 8> words;
        std::memcpy(words.data(), bytes.data() + at, sizeof words);
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = (sums[i] ^ words[i]) * factor;
    }
    std::uint64_t out = fnv1a(bytes.subspan(at));
    for (const std::uint64_t sum : sums) out = (out ^ sum ^ sum >> 29) * factor;
    return out;
}

/// Runs `work` on pieces of [0, bytes) on the thread pool and combines their checksums in order.
template <typename Work>
std::uint64_t over_pieces(kernels::Backend& backend, std::size_t bytes, Work work) {
    const std::size_t pieces = (bytes + summed_bytes - 1) / summed_bytes;
    std::vector<std::uint64_t> sums(pieces);
    backend.pool().parallel(static_cast<int>(pieces), [&](int i) {
        const std::size_t at = numel(i, summed_bytes);
        sums[i] = work(at, std::min(summed_bytes, bytes - at));
    });
    return fnv1a(std::as_bytes(std::span(sums)));
}

/// Calls pread() or pwrite() until all bytes are moved.
template <auto transfer, typename Byte>
bool transfer_all(int file, std::span<Byte> bytes, std::uint64_t at) {
    while (!bytes.empty()) {
        const ssize_t moved = transfer(file, bytes.data(), bytes.size(), static_cast<off_t>(at));
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) return false;
        bytes = bytes.subspan(moved);
        at += static_cast<std::uint64_t>(moved);
    }
    return true;
}

/// A matrix's "precision n k layout checksum" in __metadata__.
std::vector<std::string> split_words(const std::string& text) {
    std::istringstream words(text);
    return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

Result<WeightCacheOptions::Mode> parse_weight_cache_mode(std::string_view text) {
    if (text == "auto") return WeightCacheOptions::Mode::if_smaller;
    if (text == "on") return WeightCacheOptions::Mode::always;
    if (text == "off") return WeightCacheOptions::Mode::off;
    return bad_input("the weight cache must be auto, on or off, found '{}'", text);
}

std::string source_identity(const WeightSource& source) {
    std::string out;
    for (const MappedFile* file : source.files()) {
        struct stat info {};
        if (::stat(file->path().c_str(), &info) != 0) return {};
        out += fmt::format("{} {} {}.{:09} {:016x}\n", fs::path(file->path()).filename().string(),
                           file->bytes().size(), info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                           sampled_hash(std::as_bytes(file->bytes())));
    }
    return out;
}

std::unique_ptr<WeightCacheReader> WeightCacheReader::open(const std::string& path,
                                                           const std::string& identity,
                                                           kernels::Precision precision,
                                                           std::string& why_not) {
    why_not.clear();
    std::error_code error;
    if (!fs::exists(path, error)) return nullptr;
    const auto refuse = [&](std::string why) {
        why_not = std::move(why);
        return nullptr;
    };
    auto tensors = open_safetensors(path);
    if (!tensors.ok()) return refuse(tensors.error().message);
    const WeightSource& header = **tensors;
    if (header.metadata("draftscope") != fmt::format("packed weights {}", format_version))
        return refuse("another version of this program wrote it");
    if (header.metadata("source") != identity || header.metadata("precision") != kernels::to_text(precision))
        return refuse("the model's files have changed since it was written");
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return refuse(reason());
    return std::unique_ptr<WeightCacheReader>(new WeightCacheReader(std::move(*tensors), file));
}

WeightCacheReader::~WeightCacheReader() {
    ::close(file_);
}

// The bytes are read into their place, because faults of a mapping would cost more than the copy.
Result<kernels::Matrix> WeightCacheReader::read(kernels::Backend& backend, const std::string& name, int n,
                                                int k) {
    const TensorInfo* stored = tensors_->find(name);
    const std::vector<std::string> how = split_words(tensors_->metadata(name));
    if (stored == nullptr || how.size() != 5 || how[1] != std::to_string(n) || how[2] != std::to_string(k))
        return failed("{}: holds no matrix '{}' of [{}, {}]", tensors_->path(), name, n, k);
    const auto packed = kernels::precision_from(how[0]);
    const auto layout = parse_number<std::uint64_t>(how[3]),
               expected = parse_number<std::uint64_t>(how[4], 16);
    if (!packed || !layout || !expected || *layout > UINT32_MAX)
        return failed("{}: its header is damaged", tensors_->path());
    const auto mapped = tensors_->stored(*stored);
    const std::uint64_t offset = mapped.data() - tensors_->files().front()->bytes().data();
    std::span<std::byte> bytes;
    kernels::Matrix matrix =
        kernels::allocate_packed({*packed, n, k, static_cast<std::uint32_t>(*layout)}, &bytes);
    if (matrix.empty() || bytes.size() != mapped.size())
        return failed("{}: matrix '{}' is packed in a layout of another version", tensors_->path(), name);
    ::posix_fadvise(file_, static_cast<off_t>(offset),
                    static_cast<off_t>(mapped.size() + (std::uint64_t{64} << 20)), POSIX_FADV_WILLNEED);
    std::atomic<bool> complete{true};
    const std::uint64_t sum = over_pieces(backend, bytes.size(), [&](std::size_t at, std::size_t size) {
        const auto part = bytes.subspan(at, size);
        if (!transfer_all<::pread>(file_, part, offset + at)) complete = false;
        return checksum(part);
    });
    if (!complete) return failed("{}: matrix '{}' cannot be read", tensors_->path(), name);
    if (sum != *expected) return failed("{}: matrix '{}' fails its checksum", tensors_->path(), name);
    return matrix;
}

std::unique_ptr<WeightCacheWriter> WeightCacheWriter::create(const std::string& path,
                                                             const std::string& identity,
                                                             kernels::Precision precision,
                                                             std::uint64_t bytes, std::string& why_not) {
    std::error_code error;
    const fs::path folder = fs::path(path).parent_path();
    fs::create_directories(folder, error);
    struct statvfs disk {};
    if (::statvfs(folder.c_str(), &disk) != 0) {
        why_not = fmt::format("{}: {}", folder.string(), reason());
        return nullptr;
    }
    const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
    if (free < bytes + bytes / 16 + min_free_bytes) {
        why_not =
            fmt::format("{}: {:.1f} GB are free, {:.1f} GB and 1 GB of reserve are needed", folder.string(),
                        static_cast<double>(free) / 1e9, static_cast<double>(bytes) / 1e9);
        return nullptr;
    }
    std::unique_ptr<WeightCacheWriter> out(new WeightCacheWriter);
    out->path_ = path;
    out->identity_ = identity;
    out->precision_ = precision;
    const std::string partial = path + ".partial";
    out->file_ = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (out->file_ < 0) {
        why_not = fmt::format("{}: {}", partial, reason());
        return nullptr;
    }
    // The system releases the lock when its process ends, so the file of a killed process can be reused. A
    // process that opened the file before another one finished it now holds the finished file.
    struct stat opened {
    }, on_disk{};
    if (::flock(out->file_, LOCK_EX | LOCK_NB) != 0 || ::fstat(out->file_, &opened) != 0 ||
        ::stat(partial.c_str(), &on_disk) != 0 || opened.st_ino != on_disk.st_ino ||
        opened.st_dev != on_disk.st_dev) {
        why_not = fmt::format("{}: another process is writing it", path);
        return nullptr;
    }
    out->partial_ = partial;
    out->end_ = header_capacity;
    if (::ftruncate(out->file_, 0) != 0) {
        why_not = fmt::format("{}: {}", partial, reason());
        return nullptr;
    }
    return out;
}

WeightCacheWriter::~WeightCacheWriter() {
    if (!partial_.empty()) ::unlink(partial_.c_str());
    if (file_ >= 0) ::close(file_);
}

Status WeightCacheWriter::add(kernels::Backend& backend, const std::string& name,
                              const kernels::Matrix& matrix) {
    const auto bytes = kernels::packed_bytes(matrix);
    const std::uint64_t offset = end_;
    std::atomic<int> error{0};
    const std::uint64_t sum = over_pieces(backend, bytes.size(), [&](std::size_t at, std::size_t size) {
        const auto part = bytes.subspan(at, size);
        if (!transfer_all<::pwrite>(file_, part, offset + at)) error = errno != 0 ? errno : EIO;
        return checksum(part);
    });
    if (error != 0)
        return failed("{}: cannot be written: {}", partial_, std::generic_category().message(error));
    const kernels::PackedShape shape = kernels::packed_shape(matrix);
    entries_.push_back({name,
                        fmt::format("{} {} {} {} {:016x}", kernels::to_text(shape.precision), shape.n,
                                    shape.k, shape.layout, sum),
                        offset, bytes.size()});
    end_ = (offset + bytes.size() + alignment - 1) / alignment * alignment;
    return {};
}

Status WeightCacheWriter::finish() {
    Json header = Json::object();
    Json metadata = {{"draftscope", fmt::format("packed weights {}", format_version)},
                     {"source", identity_},
                     {"precision", kernels::to_text(precision_)}};
    for (const Entry& entry : entries_) {
        metadata[entry.name] = entry.text;
        const std::uint64_t begin = entry.offset - header_capacity;
        header[entry.name] = {
            {"dtype", "U8"}, {"shape", {entry.bytes}}, {"data_offsets", {begin, begin + entry.bytes}}};
    }
    header["__metadata__"] = std::move(metadata);
    std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
    const std::uint64_t length = header_capacity - sizeof(std::uint64_t);
    if (text.size() > length) return failed("{}: {} matrices are too many", partial_, entries_.size());
    text.resize(length, ' ');
    if (!transfer_all<::pwrite>(file_, std::as_bytes(std::span(&length, 1)), 0) ||
        !transfer_all<::pwrite>(file_, std::as_bytes(std::span(text)), sizeof length) ||
        ::fdatasync(file_) != 0 || ::rename(partial_.c_str(), path_.c_str()) != 0)
        return failed("{}: cannot be written: {}", partial_, reason());
    partial_.clear();
    return {};
}

}  // namespace draftscope
