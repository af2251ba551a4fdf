#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/jobs/commands.h"
#include "base/result.h"
#include "engine/heads/head.h"

/// Where the files lie that heads are made from: what a person gave, else what ships for the demo model.
namespace draftscope {

/// What is known of a run before its heads are made.
struct ArtefactPlaces {
    std::span<const std::string> given;  ///< HEAD=PATH; HEAD may be rdk
    bool demo_model = false;             ///< the shipped files fit no other
    std::string drafter_id;
    std::string synthetic = {};  ///< "synthetic:NAME", the target that what is missing is made up for
};

/// Every `given` names a known head and an existing file, and no head has two files.
Status check_given_artefacts(std::span<const std::string> given);
/// Whether a head is made from the file of "HEAD=PATH".
bool uses_artefact(const HeadSpec& head, const std::string& artefact);
/// Every file belongs to one of the heads of the run; bad_input names the one that does not.
Status check_artefacts_used(std::span<const std::string> given, std::span<const HeadSpec> heads);
/// The files for one head. A fitted head's shipped artefact is one whose parameters `spec` does not
/// contradict; absent files stay "", and make_head says what is missing.
HeadArtefacts find_artefacts(const HeadSpec& spec, const ArtefactPlaces& places);
/// The frequency ranking of the demo model, for coverage; "" = none.
std::string demo_ranking_path();
/// Folder of the drafter that was trained with a head's artefact; "" = it goes with any. A folder that is
/// named and not there is bad_input.
Result<std::string> drafter_of_artefact(const HeadSpec& spec, const HeadArtefacts& artefacts);

/// A head that was fitted on prompts it is judged by looks better than it is: the warning to give when its
/// artefact saw some of `prompts` (prompt_hash() each, "" = not known), which are those of `whose`; "" =
/// none.
std::string overlap_warning(const HeadSpec& spec, const HeadArtefacts& artefacts,
                            std::span<const std::string> prompts, std::string_view whose);

/// The heads as the window offers them for the demo model.
std::vector<HeadChoice> head_choices();

}  // namespace draftscope
