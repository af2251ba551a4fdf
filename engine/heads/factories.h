#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "engine/heads/head.h"

/// One factory per head, listed in the registry.
namespace draftscope {

Result<std::unique_ptr<LmHead>> make_full_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_fr_spec_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_pa_fr_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_vocabtrim_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_vocabtrim_t_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_bcl_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_coral_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_dynaspec_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_specvocab_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_slimspec_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_microspec_head(const HeadSpec& spec, const HeadFiles& artefacts);
Result<std::unique_ptr<LmHead>> make_oracle_head(const HeadSpec& spec, const HeadFiles& artefacts);

/// Returns parameter `name`, or `fallback` if absent.
Result<double> number_param(const HeadSpec& spec, std::string_view name, double fallback);
/// Returns whole-number parameter `name`, or `fallback` if absent. The registry has validated number and
/// range.
Result<int> whole_param(const HeadSpec& spec, std::string_view name, int fallback);
/// Returns the word of a parameter with choices, or `fallback` if absent.
std::string_view word_param(const HeadSpec& spec, std::string_view name, std::string_view fallback);
/// Returns the whole numbers of list parameter `name` ("16384/8192"), empty if absent.
Result<std::vector<int>> whole_list_param(const HeadSpec& spec, std::string_view name);

}  // namespace draftscope
