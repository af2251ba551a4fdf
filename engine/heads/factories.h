#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "engine/heads/head.h"

/// One factory per head, named in the registry table.
namespace draftscope {

Result<std::unique_ptr<Head>> make_full_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_fr_spec_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_pa_fr_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_vocabtrim_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_vocabtrim_t_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_bcl_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_coral_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_dynaspec_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_specvocab_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_slimspec_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_microspec_head(const HeadSpec& spec, const HeadArtefacts& artefacts);
Result<std::unique_ptr<Head>> make_oracle_head(const HeadSpec& spec, const HeadArtefacts& artefacts);

/// Parameter `name`, absent = `fallback`.
Result<double> number_param(const HeadSpec& spec, std::string_view name, double fallback);
/// Whole-number parameter `name`, absent = `fallback`. The registry has checked that it is a number in range.
Result<int> whole_param(const HeadSpec& spec, std::string_view name, int fallback);
/// The word of a parameter with choices, absent = `fallback`.
std::string_view word_param(const HeadSpec& spec, std::string_view name, std::string_view fallback);
/// The whole numbers of list parameter `name` ("16384/8192"), absent = empty.
Result<std::vector<int>> whole_list_param(const HeadSpec& spec, std::string_view name);

}  // namespace draftscope
