#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "capture/capture.h"

/// Text forms that the Session panel edits as fields.
namespace draftscope {

/// `depth=3,topk=4,nodes=12` in EAGLE-2's meaning, or `chain=6`.
struct TreeFields {
    bool chain = false;
    int depth = 3;  ///< extra forwards; of a chain its length
    int topk = 4;
    int nodes = 12;  ///< root included
    bool operator==(const TreeFields&) const = default;
};
/// Absent for "", "auto", "paper:..." and anything malformed: those are edited as text.
std::optional<TreeFields> parse_tree(std::string_view spec);
std::string format_tree(const TreeFields& fields);
/// Most nodes that such a tree can have, root included.
int largest_tree(const TreeFields& fields);

struct RecordedSettings {
    std::string title;    ///< "this file: eagle3  fr-spec:v=8192  depth=3,topk=4,nodes=12"
    std::string details;  ///< target, precision, threads and sampling
};
/// What a run of an opened file was decoded with; absent when nothing or a live run is shown.
std::optional<RecordedSettings> recorded_settings(const Snapshot& snapshot, RowId run_id);

/// "NAME" of "NAME:path" or "NAME:v=8192": what a list entry is matched by.
std::string_view spec_name(std::string_view spec);

}  // namespace draftscope
