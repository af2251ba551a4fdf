#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/result.h"

namespace draftscope {

/// The uncompressed members of a zip archive, as PyTorch writes them. Every offset and size is checked
/// against the file; a compressed member is an error.
class ZipArchive {
  public:
    static Result<ZipArchive> open(const MappedFile& file);

    /// Returns null if the archive has no such member.
    const std::span<const std::uint8_t>* find(std::string_view name) const;
    const std::map<std::string, std::span<const std::uint8_t>, std::less<>>& members() const {
        return members_;
    }

  private:
    std::map<std::string, std::span<const std::uint8_t>, std::less<>> members_;
};

}  // namespace draftscope
