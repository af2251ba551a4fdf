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

std::size_t total_bytes(const DirectIoReader::Group& group) {
    std::size_t bytes = 0;
    for (const auto range : group) bytes += range.size();
    return bytes;
}

/// Reads up to `size` bytes and returns their number; -1 with errno set on failure.
::ssize_t read_fully(int descriptor, std::byte* to, std::size_t size, std::size_t at) {
    std::size_t done = 0;
    while (done < size) {
        const ::ssize_t got =
            ::pread(descriptor, to + done, std::min(piece, size - done), static_cast<::off_t>(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += got;
        // A partial block is the end of the file; reading on from an unaligned offset would fail.
        if (got % disk_block != 0) break;
    }
    return static_cast<::ssize_t>(done);
}

}  // namespace

std::unique_ptr<DirectIoReader> DirectIoReader::open(std::span<const MappedFile* const> files,
                                                     std::vector<Group> groups, int flags,
                                                     std::size_t window) {
    std::unique_ptr<DirectIoReader> out(new DirectIoReader(std::move(groups), window));
    const Buffer probe = out->acquire_buffer(disk_block);
    bool able = probe.data != nullptr;
    for (const MappedFile* mapped : files) {
        const int descriptor = ::open(mapped->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
        if (descriptor < 0) {
            able = false;
            break;
        }
        out->files_.push_back({mapped, descriptor});
        struct stat info {};
        able = able && ::fstat(descriptor, &info) == 0 && mapped->is_same_file(info) &&
               read_fully(descriptor, probe.data, disk_block, 0) > 0;
    }
    for (const Group& group : out->groups_) {
        for (const auto range : group) able = able && out->find_file(range) != nullptr;
    }
    out->spare_.push_back(probe);
    if (!able) return nullptr;
    out->thread_ = std::thread([reader = out.get()] { reader->run(); });
    return out;
}

DirectIoReader::~DirectIoReader() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    moved_.notify_all();
    if (thread_.joinable()) thread_.join();
    release_buffers(in_use_);
    for (Read& read : ready_) release_buffers(read);
    for (const Buffer& buffer : spare_) std::free(buffer.data);
    for (const File& file : files_) ::close(file.descriptor);
}

const DirectIoReader::File* DirectIoReader::find_file(std::span<const std::uint8_t> range) const {
    for (const File& file : files_) {
        const auto all = file.mapped->bytes();
        if (range.data() >= all.data() && range.data() + range.size() <= all.data() + all.size())
            return &file;
    }
    return nullptr;
}

/// Reuses a spare buffer: layers have equal shapes, so a released buffer fits the next layer.
DirectIoReader::Buffer DirectIoReader::acquire_buffer(std::size_t bytes) {
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

void DirectIoReader::release_buffers(Read& read) {
    spare_.insert(spare_.end(), read.buffers.begin(), read.buffers.end());
    held_bytes_ -= read.bytes;
    read = {};
}

Status DirectIoReader::read(const File& file, std::span<const std::uint8_t> range, Read& out) {
    const std::size_t first = range.data() - file.mapped->bytes().data();
    const std::size_t before = first % disk_block;
    const std::size_t size = up(before + range.size(), disk_block);
    const Buffer buffer = acquire_buffer(size);
    if (buffer.data == nullptr)
        return failed("{}: out of memory for a read buffer of {} bytes", file.mapped->path(), size);
    out.buffers.push_back(buffer);
    const ::ssize_t got = read_fully(file.descriptor, buffer.data, size, first - before);
    if (got < 0) {
        return failed("{}: {} bytes at offset {} cannot be read: {}", file.mapped->path(), range.size(),
                      first, std::generic_category().message(errno));
    }
    if (static_cast<std::size_t>(got) < before + range.size()) {
        return failed("{}: ends before byte {}; the file was truncated during the read", file.mapped->path(),
                      first + range.size());
    }
    out.ranges.emplace_back(reinterpret_cast<const std::uint8_t*>(buffer.data) + before, range.size());
    return {};
}

Status DirectIoReader::read(const Group& group, Read& out) {
    for (const auto range : group) DS_TRY(read(*find_file(range), range, out));
    return {};
}

void DirectIoReader::run() {
    for (const Group& group : groups_) {
        Read read;
        read.bytes = total_bytes(group);
        {
            std::unique_lock lock(mutex_);
            moved_.wait(lock,
                        [&] { return stop_ || held_bytes_ == 0 || held_bytes_ + read.bytes <= window_; });
            if (stop_) return;
            held_bytes_ += read.bytes;
        }
        Status status = this->read(group, read);
        const std::lock_guard lock(mutex_);
        if (!status.ok()) error_ = status.error();
        ready_.push_back(std::move(read));
        moved_.notify_all();
        if (error_) return;
    }
}

Result<std::vector<std::span<const std::uint8_t>>> DirectIoReader::next() {
    std::unique_lock lock(mutex_);
    release_buffers(in_use_);
    moved_.notify_all();
    moved_.wait(lock, [&] { return !ready_.empty(); });
    in_use_ = std::move(ready_.front());
    ready_.erase(ready_.begin());
    if (ready_.empty() && error_) return *error_;
    return in_use_.ranges;
}

double cached_fraction(std::span<const DirectIoReader::Group> groups) {
    constexpr std::size_t wanted = 256;
    std::size_t bytes = 0;
    for (const DirectIoReader::Group& group : groups) bytes += total_bytes(group);
    const std::size_t page = ::sysconf(_SC_PAGESIZE);
    const std::size_t step = std::max(page, bytes / wanted);
    std::size_t looked = 0, cached = 0, at = 0;
    for (const DirectIoReader::Group& group : groups) {
        for (const auto range : group) {
            for (; at < range.size(); at += step) {
                const auto address = reinterpret_cast<std::uintptr_t>(range.data() + at) / page * page;
                unsigned char resident = 1;
                if (::mincore(reinterpret_cast<void*>(address), page, &resident) != 0) resident = 1;
                ++looked;
                cached += resident & 1;
            }
            at -= range.size();
        }
    }
    return looked == 0 ? 1.0 : static_cast<double>(cached) / static_cast<double>(looked);
}

}  // namespace draftscope
