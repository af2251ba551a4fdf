#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace draftscope {

/// A folder in the system's folder for temporary files. The destructor deletes it with its contents.
class TemporaryFolder {
  public:
    TemporaryFolder() = default;
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    /// Makes the folder, whose name begins with "draftscope-" and `name`.
    Status make(std::string_view name);
    /// Returns the path of a file in the folder.
    std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  private:
    std::string path_;
};

}  // namespace draftscope
