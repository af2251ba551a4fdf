#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/result.h"

namespace draftscope {

/// The uncompressed members of a zip archive by name, as PyTorch writes them.
using ZipMembers = std::map<std::string, std::span<const std::uint8_t>, std::less<>>;

/// Every offset and size is checked against the file; a compressed member is an error.
Result<ZipMembers> read_zip(const MappedFile& file);

}  // namespace draftscope
