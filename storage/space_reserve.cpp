#include "storage/space_reserve.h"

#include <fcntl.h>
#include <unistd.h>

namespace draftscope::storage {

SpaceReserve::SpaceReserve(const std::string& path, std::int64_t bytes) {
    const std::string name = path + "-reserve";
    file_ = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file_ < 0) return;
    unlink(name.c_str());
    if (posix_fallocate(file_, 0, bytes) != 0) release();
}

void SpaceReserve::release() {
    if (file_ >= 0) close(file_);
    file_ = -1;
}

}  // namespace draftscope::storage
