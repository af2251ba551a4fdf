#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "app/jobs/commands/commands.h"
#include "capture/capture.h"

/// Conversions between specifications and the fields of the Session panel.
namespace draftscope {

/// A tree `depth=3,topk=4,nodes=12` as EAGLE-2 defines it, or a `chain=6`.
struct TreeFields {
    bool chain = false;
    int depth = 3;  ///< drafter forwards after the first; length of a chain
    int topk = 4;
    int nodes = 12;  ///< root included
    bool operator==(const TreeFields&) const = default;
};
/// Parses a tree specification. Absent for "", "auto", "paper:..." and malformed text, which are edited as
/// text.
std::optional<TreeFields> parse_tree(std::string_view spec);
std::string format_tree(const TreeFields& fields);
/// Returns the maximum number of nodes of such a tree, root included.
int largest_tree(const TreeFields& fields);

/// Settings of a stored run, as text.
struct RecordedSettings {
    std::string title;    ///< "this file: eagle3  fr-spec:v=8192  depth=3,topk=4,nodes=12"
    std::string details;  ///< target, precision, threads and sampling
};
/// Returns the settings of a stored run; absent for live runs or without a run.
std::optional<RecordedSettings> recorded_settings(const Snapshot& snapshot, RowId run_id);

/// Returns one line on the memory of a run's weights and caches; "" if it is unknown.
std::string memory_text(const RunRow& run);

/// Replaces what belongs to another model, after the model was changed. A drafter that needs weights and has
/// no path becomes suffix decoding, a head the full one, and an automatic tree the default.
void adapt_to_model(RunConfig& config, bool needs_weights);

/// Sets the weights file of a head, in place of its earlier one; "" = none.
void set_head_weights(RunConfig& config, const std::string& head, const std::string& path);

/// Returns the first mistake that belongs to a field, "Tree: topk=40 is outside 1..32"; "" = there is none.
std::string why_not_to_start(std::span<const Mistake> mistakes);

/// Returns "NAME" of "NAME:path" or "NAME:v=8192". List entries are matched by it.
std::string_view spec_name(std::string_view spec);

}  // namespace draftscope
