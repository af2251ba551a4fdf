#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/draft/drafter.h"

/// The registry of drafters: everything that other folders must know of a drafter. They read these traits
/// instead of comparing ids.
namespace draftscope {

enum class EagleGeneration;
struct HeadInfo;

/// Registry entry of a drafter.
struct DrafterInfo {
    std::string_view id;
    std::string_view name;
    std::string_view paper = {};
    std::string_view help;
    bool drafts = true;          ///< false: one token per round, the baseline of speed-ups
    bool uses_head = true;       ///< drafts through --head, unless its checkpoint has LM heads of its own
    bool chains_only = false;    ///< drafts chains, whatever the tree
    bool needs_weights = true;   ///< needs a checkpoint
    bool trains_heads = true;    ///< heads can be trained for it
    bool has_synthetic = false;  ///< make() accepts "synthetic:NAME" as path: random weights for that target
    /// Generation of its EAGLE checkpoints, whose backbone `fit --joint` can train; none = another kind.
    std::optional<EagleGeneration> eagle = {};
    std::string_view usual_tree = {};  ///< its default tree; "" = the backend's
    std::string_view usual = {};       ///< the window's choice of what follows the colon; "" = nothing
    /// Keys of the options behind its path, "PATH,key=value".
    std::span<const std::string_view> options = {};
    /// `path`: folder or file of the checkpoint with options; "" or parameters for drafters without weights.
    Result<std::unique_ptr<Drafter>> (*make)(const std::string& path, const Target& target,
                                             kernels::Backend& backend) = nullptr;
};
/// All drafters; find_drafter() returns null for an unknown id.
std::span<const DrafterInfo> drafter_registry();
const DrafterInfo* find_drafter(std::string_view id);

/// Returns "pair:TEXT+", once or repeated, at the start of a spec; "" if it is no pair.
std::string_view pair_prefix(std::string_view spec);
/// Returns an error if a spec that begins with "pair" is no pair of a text drafter and another drafter.
Status check_pair(std::string_view spec);
/// Returns the id of a drafter spec, "NAME" or "NAME:PATH". That of a pair is "pair:TEXT+NAME".
std::string_view drafter_id(std::string_view spec);
/// Splits "eagle3:PATH,rope=target,ngram". A drafter begins at the name of one; other pieces continue it.
std::vector<std::string> split_drafters(std::string_view list);
/// Puts the default path before the options of ",key=value" and in place of "".
std::string with_default_path(std::string_view text, std::string_view default_path);
/// Returns an error if a head must be trained for its drafter, but cannot be for this one.
Status check_head(const DrafterInfo& drafter, const HeadInfo& head);
/// Traits of a drafter spec, of a pair those of its last drafter. Those of an unknown drafter, which
/// make_drafter() rejects, are DrafterInfo's defaults.
DrafterInfo drafter_traits(std::string_view spec);

}  // namespace draftscope
