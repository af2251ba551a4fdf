#pragma once

#include <gtest/gtest.h>

#include "app/jobs/commands/commands.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_model.h"

namespace draftscope::testing {

/// A tiny target with a tiny EAGLE-2 drafter on disk, and configs that use them.
class TinyFiles {
  public:
    TinyFiles() {
        TinyModelOptions options;
        options.context = 2048;
        EXPECT_TRUE(write_tiny_gguf(model(), 3, options).ok());
        EXPECT_TRUE(write_tiny_eagle2(folder_.file("eagle2"), 5).ok());
    }
    std::string model() const { return folder_.file("tiny.gguf"); }
    std::string file(const std::string& name) const { return folder_.file(name); }
    RunConfig config(int max_new = 24) const {
        RunConfig made;
        made.model = model();
        made.drafter = "eagle2:" + folder_.file("eagle2");
        made.prompt = "hello you and the";
        made.max_new = max_new;
        made.ignore_eos = true;
        made.threads = 1;
        made.precision = "f32";
        made.calibration_rounds = 0;
        return made;
    }

  private:
    ScratchFolder folder_;
};

}  // namespace draftscope::testing
