#include "engine/weights/direct_io_reader.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace draftscope {
namespace {

constexpr std::size_t piece = std::size_t{8} << 20;
constexpr std::size_t huge_page = std::size_t{2} << 20;
/// Alignment that O_DIRECT requires of offset, length and memory.
constexpr std::size_t disk_block = 4096;

std::size_t up(std::size_t value, std::size_t unit) {
    return (value + unit - 1) / unit * unit;
}

std::size_t bytes_of(const DirectReader::Group& group) {
    std::size_t bytes = 0;
    for (const auto stretch : group) bytes += stretch.size();
    return bytes;
}

/// Reads up to `size` bytes and returns their number; -1 with errno set on failure.
::ssize_t read_whole(int descriptor, std::byte* to, std::size_t size, std::size_t at) {
    std::size_t done = 0;
    while (done < size) {
        const ::ssize_t got =
            ::pread(descriptor, to + done, std::min(piece, size - done), static_cast<::off_t>(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
        // A partial block is the end of the file; reading on from an unaligned offset would fail.
        if (static_cast<std::size_t>(got) % disk_block != 0) break;
    }
    return static_cast<::ssize_t>(done);
}

}  // namespace

std::unique_ptr<DirectReader> DirectReader::open(std::span<const MappedFile* const> files,
                                                 std::vector<Group> groups, int flags, std::size_t window) {
    std::unique_ptr<DirectReader> out(new DirectReader(std::move(groups), window));
    const Buffer probe = out->take(disk_block);
    bool able = probe.data != nullptr;
    for (const MappedFile* mapped : files) {
        const int descriptor = ::open(mapped->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
        if (descriptor < 0) {
            able = false;
            break;
        }
        out->files_.push_back({mapped, descriptor});
        struct stat info {};
        able = able && ::fstat(descriptor, &info) == 0 && mapped->is(info) &&
               read_whole(descriptor, probe.data, disk_block, 0) > 0;
    }
    for (const Group& group : out->groups_) {
        for (const auto stretch : group) able = able && out->file_of(stretch) != nullptr;
    }
    out->spare_.push_back(probe);
    if (!able) return nullptr;
    out->thread_ = std::thread([reader = out.get()] { reader->run(); });
    return out;
}

DirectReader::~DirectReader() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    moved_.notify_all();
    if (thread_.joinable()) thread_.join();
    give_back(used_);
    for (Read& read : ready_) give_back(read);
    for (const Buffer& buffer : spare_) std::free(buffer.data);
    for (const File& file : files_) ::close(file.descriptor);
}

const DirectReader::File* DirectReader::file_of(std::span<const std::uint8_t> stretch) const {
    for (const File& file : files_) {
        const auto all = file.mapped->bytes();
        if (stretch.data() >= all.data() && stretch.data() + stretch.size() <= all.data() + all.size())
            return &file;
    }
    return nullptr;
}

/// Reuses a spare buffer: layers have equal shapes, so a released buffer fits the next layer.
DirectReader::Buffer DirectReader::take(std::size_t bytes) {
    const std::size_t unit = bytes >= huge_page ? huge_page : disk_block;
    const std::size_t size = up(bytes, unit);
    {
        const std::lock_guard lock(mutex_);
        std::size_t spare = 0;
        for (auto buffer = spare_.begin(); buffer != spare_.end(); ++buffer) {
            if (buffer->size >= size && buffer->size <= size + size / 4) {
                const Buffer found = *buffer;
                spare_.erase(buffer);
                return found;
            }
            spare += buffer->size;
        }
        while (spare + size > window_ && !spare_.empty()) {
            spare -= spare_.front().size;
            std::free(spare_.front().data);
            spare_.erase(spare_.begin());
        }
    }
    void* data = std::aligned_alloc(unit, size);
    if (data != nullptr && unit == huge_page) ::madvise(data, size, MADV_HUGEPAGE);
    return {static_cast<std::byte*>(data), size};
}

void DirectReader::give_back(Read& read) {
    spare_.insert(spare_.end(), read.buffers.begin(), read.buffers.end());
    held_ -= read.bytes;
    read = {};
}

Status DirectReader::read(const File& file, std::span<const std::uint8_t> stretch, Read& out) {
    const auto first = static_cast<std::size_t>(stretch.data() - file.mapped->bytes().data());
    const std::size_t before = first % disk_block;
    const std::size_t size = up(before + stretch.size(), disk_block);
    const Buffer buffer = take(size);
    if (buffer.data == nullptr)
        return failed("{}: out of memory for a read buffer of {} bytes", file.mapped->path(), size);
    out.buffers.push_back(buffer);
    const ::ssize_t got = read_whole(file.descriptor, buffer.data, size, first - before);
    if (got < 0) {
        return failed("{}: {} bytes at offset {} cannot be read: {}", file.mapped->path(), stretch.size(),
                      first, std::generic_category().message(errno));
    }
    if (static_cast<std::size_t>(got) < before + stretch.size()) {
        return failed("{}: ends before byte {}; the file was truncated during the read", file.mapped->path(),
                      first + stretch.size());
    }
    out.stretches.emplace_back(reinterpret_cast<const std::uint8_t*>(buffer.data) + before, stretch.size());
    return {};
}

Status DirectReader::read(const Group& group, Read& out) {
    for (const auto stretch : group) DS_TRY(read(*file_of(stretch), stretch, out));
    return {};
}

void DirectReader::run() {
    for (const Group& group : groups_) {
        Read read;
        read.bytes = bytes_of(group);
        {
            std::unique_lock lock(mutex_);
            moved_.wait(lock, [&] { return stop_ || held_ == 0 || held_ + read.bytes <= window_; });
            if (stop_) return;
            held_ += read.bytes;
        }
        Status status = this->read(group, read);
        const std::lock_guard lock(mutex_);
        if (!status.ok()) error_ = status.error();
        ready_.push_back(std::move(read));
        moved_.notify_all();
        if (error_) return;
    }
}

Result<std::vector<std::span<const std::uint8_t>>> DirectReader::next() {
    std::unique_lock lock(mutex_);
    give_back(used_);
    moved_.notify_all();
    moved_.wait(lock, [&] { return !ready_.empty(); });
    used_ = std::move(ready_.front());
    ready_.erase(ready_.begin());
    if (ready_.empty() && error_) return *error_;
    return used_.stretches;
}

double cached_share(std::span<const DirectReader::Group> groups) {
    constexpr std::size_t wanted = 256;
    std::size_t bytes = 0;
    for (const DirectReader::Group& group : groups) bytes += bytes_of(group);
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t step = std::max(page, bytes / wanted);
    std::size_t looked = 0, cached = 0, at = 0;
    for (const DirectReader::Group& group : groups) {
        for (const auto stretch : group) {
            for (; at < stretch.size(); at += step) {
                const auto address = reinterpret_cast<std::uintptr_t>(stretch.data() + at) / page * page;
                unsigned char resident = 1;
                if (::mincore(reinterpret_cast<void*>(address), page, &resident) != 0) resident = 1;
                ++looked;
                cached += resident & 1;
            }
            at -= stretch.size();
        }
    }
    return looked == 0 ? 1.0 : static_cast<double>(cached) / static_cast<double>(looked);
}

}  // namespace draftscope
