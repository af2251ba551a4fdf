#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/jobs/commands/commands.h"
#include "base/result.h"
#include "engine/heads/head.h"

/// Finds the weights files of heads: those given by the user, else those shipped for the demo model.
namespace draftscope {

struct HeadInfo;

/// Where to look for the weights files of a run's heads.
struct ArtefactSources {
    std::span<const std::string> given;  ///< HEAD=PATH; HEAD may be the suffix rdk
    bool demo_model = false;             ///< shipped files fit only the demo model
    std::string drafter_id;
    std::string synthetic = {};  ///< "synthetic:NAME": missing weights are generated for this target
};

/// Returns true if a file or folder has this path and can be reached.
bool file_exists(const std::string& path);
/// Checks that each item of `given` names a known head and an existing file. No head may have two files.
Status check_given_artefacts(std::span<const std::string> given);
/// Checks the file that the spec itself names ("slimspec:file=PATH"); ok without one.
Status check_file_of(const HeadSpec& spec);
/// Returns true if the head uses the file of "HEAD=PATH". A head that names its file uses no other.
bool uses_artefact(const HeadSpec& head, const std::string& artefact);
/// Checks that each file belongs to one of the run's heads. Otherwise bad_input names the file.
Status check_artefacts_used(std::span<const std::string> given, std::span<const HeadSpec> heads);
/// Returns the files for one head. A shipped weights file is used if its parameters agree with `spec`.
/// Missing files stay ""; make_head() reports them.
HeadFiles find_artefacts(const HeadSpec& spec, const ArtefactSources& sources);
/// Returns the command that fits the heads of one of the demo model's drafters.
std::string demo_heads_command(std::string_view drafter);
/// Returns the path of the demo model's token ranking by its own responses; "" = none.
std::string demo_ranking_path();
/// Returns the path of the demo model's ranking from raw text, for heads that are ranked by it; "" = none.
std::string demo_text_ranking_path();
/// Returns the folder of the drafter that a head was trained with; "" = the head works with any drafter. If
/// the weights file names a missing folder, returns bad_input.
Result<std::string> find_trained_drafter(const HeadSpec& spec, const HeadFiles& artefacts);

/// Returns a warning if the head was fitted on some of `prompts`, which makes its acceptance too high; "" =
/// none. `prompts` are values of prompt_hash() ("" = not known); `whose` names their source in the warning.
std::string overlap_warning(const HeadSpec& spec, const HeadFiles& artefacts,
                            std::span<const std::string> prompts, std::string_view prompt_source);

/// What a head's weights file or ranking says about its making; "" and absent = it does not say.
struct HeadFileReport {
    std::string path;
    std::map<std::string, std::string, std::less<>> parameters;  ///< of a weights file: rank, v, ...
    std::string trained;           ///< "joint" with its drafter, or "post-hoc"; "" for a ranking
    std::optional<double> lambda;  ///< weight of SpecVocab's own loss in a joint training
    std::map<std::string, double, std::less<>> held_out;  ///< of a fit: kl, top1, recall10, coverage, ...
    std::string source;                                   ///< what a ranking was counted on
};
/// Reads the report of a head's file. Absent for a head without a file, and for unreadable files.
std::optional<HeadFileReport> head_file_report(const HeadSpec& spec, const HeadFiles& artefacts);

/// Returns the default of the parameter that sizes a head; 0 = none.
double default_size(const HeadInfo& info);
/// Returns the size that the head's weights were made for, as in a spec; "" = unknown, or a head without
/// sizes.
std::string fitted_size(const HeadSpec& spec, const HeadFiles& artefacts);

/// Returns the heads that the window offers for the demo model.
std::vector<HeadChoice> head_choices();

}  // namespace draftscope
