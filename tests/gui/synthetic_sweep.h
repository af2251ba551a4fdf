#pragma once

#include <memory>
#include <string>

#include "app/jobs/commands/sweep_report.h"

namespace draftscope::test {

/// A sweep of eagle3 with two heads of three sizes each, and of the full head, over chains and trees. It has
/// two batches, seven conversations in two categories, and an advice. Round times follow from the sizes.
std::shared_ptr<const SweepReport> synthetic_sweep(const std::string& file = "/captures/sweep.dscope");

}  // namespace draftscope::test
