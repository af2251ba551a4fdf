#pragma once

#include <functional>
#include <memory>

#include "app/jobs/commands.h"
#include "capture/capture.h"

namespace draftscope {

/// What the window holds on to: takes commands, runs jobs on its own engine thread, gives snapshots and
/// status. An interface so that panels and shell are tested without an engine.
class Controller {
  public:
    virtual ~Controller() = default;
    virtual void submit(const Commands& commands) = 0;
    virtual std::shared_ptr<const Snapshot> snapshot() const = 0;
    virtual JobStatus status() const = 0;
};

/// The real one. `wake` may be called from any thread when something new is there to show.
std::unique_ptr<Controller> make_controller(std::function<void()> wake);

}  // namespace draftscope
