#pragma once

#include <functional>
#include <memory>

#include "app/jobs/commands/commands.h"
#include "capture/capture.h"

namespace draftscope {

/// The window's connection to the jobs: takes commands, runs jobs on an engine thread, returns snapshots and
/// status. An interface, so that panels and shell can be tested without an engine.
class Controller {
  public:
    virtual ~Controller() = default;
    virtual void submit(const Commands& commands) = 0;
    virtual std::shared_ptr<const Snapshot> snapshot() const = 0;
    virtual JobStatus status() const = 0;
};

/// Returns the implementation with an engine. It calls `wake`, from any thread, when there is new data to
/// show.
std::unique_ptr<Controller> make_controller(std::function<void()> wake);

}  // namespace draftscope
