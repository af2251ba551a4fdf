#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <system_error>

static_assert(std::endian::native == std::endian::little, "model files are little-endian and read in place");

namespace draftscope {
namespace {

/// Closes the descriptor on every return path; the mapping stays valid.
struct Descriptor {
    int number = -1;
    ~Descriptor() {
        if (number >= 0) ::close(number);
    }
};

std::string reason(int error_number) {
    return std::generic_category().message(error_number);
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path, std::string_view kind) {
    // Non-blocking, so that a named pipe without a writer is an error instead of a hang.
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.number < 0) {
        if (errno == ENOENT) return bad_input("{}: no such file", path);
        return bad_input("{}: cannot be opened: {}", path, reason(errno));
    }
    struct stat info {};
    if (::fstat(file.number, &info) != 0) return bad_input("{}: cannot be read: {}", path, reason(errno));
    if (S_ISDIR(info.st_mode)) return bad_input("{}: is a folder, expected {}", path, kind);
    if (!S_ISREG(info.st_mode)) return bad_input("{}: is not a regular file, expected {}", path, kind);
    if (info.st_size == 0) return bad_input("{}: is empty, expected {}", path, kind);
    const std::size_t size = info.st_size;
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
    if (data == MAP_FAILED)
        return failed("{}: {} bytes cannot be mapped into memory: {}", path, size, reason(errno));
    std::shared_ptr<const MappedFile> out(
        new MappedFile(path, {static_cast<const std::uint8_t*>(data), size}));
    DS_TRY(check_no_lfs_pointer(path, {static_cast<const char*>(data), size}));
    return out;
}

Status check_no_lfs_pointer(const std::string& path, std::string_view start) {
    if (!start.starts_with("version https://git-lfs")) return {};
    return bad_input("{}: is a git-lfs pointer, not the file itself; fetch it with git lfs pull", path);
}

MappedFile::~MappedFile() {
    ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

std::string printable(std::string_view text) {
    constexpr std::size_t max_length = 80;
    std::string out;
    for (const char c : text.substr(0, max_length)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte >= 0x7f)
            out += fmt::format("\\x{:02x}", byte);
        else
            out += c;
    }
    if (text.size() > max_length) out += "...";
    return out;
}

}  // namespace draftscope
