#pragma once

#include <string>

#include "app/jobs/commands/run_config.h"

/// What to do with a path that is dropped on the window.
namespace draftscope {

enum class DroppedKind { capture, model, drafter, head_weights, prompts, recording, profile, unknown };

/// Tells the kind of a file or folder by its name and its first bytes. Captures stand for everything that can
/// be opened.
DroppedKind dropped_kind(const std::string& path);

/// Makes a dropped path part of the session. Returns what was done, in one line. `needs_weights`: of the
/// session's drafter, which then takes a checkpoint.
std::string use_dropped(const std::string& path, DroppedKind kind, bool needs_weights, RunConfig& config);

}  // namespace draftscope
