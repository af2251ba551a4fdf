#include "base/temporary_folder.h"

#include <cstdlib>
#include <filesystem>

namespace draftscope {

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Status TemporaryFolder::make(std::string_view name) {
    std::error_code error;
    std::string path =
        (std::filesystem::temp_directory_path(error) / fmt::format("draftscope-{}-XXXXXX", name)).string();
    if (error || ::mkdtemp(path.data()) == nullptr)
        return failed("{}: no temporary folder can be made; set TMPDIR to a writable folder", path);
    path_ = std::move(path);
    return {};
}

}  // namespace draftscope
