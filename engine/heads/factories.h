#pragma once

#include <memory>

#include "engine/heads/head.h"

/// One factory per head, named in the registry table.
namespace draftscope {

Result<std::unique_ptr<Head>> make_full_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_fr_spec_head(const HeadSpec& spec, const HeadArtefacts& artefacts);

/// Whole-number parameter `name`, absent = `fallback`. The registry has checked that it is a number in range.
Result<int> whole_param(const HeadSpec& spec, std::string_view name, int fallback);

}  // namespace draftscope
