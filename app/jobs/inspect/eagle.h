#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/jobs/inspect/contents.h"
#include "engine/draft/eagle_checkpoint.h"
#include "engine/draft/head_rows.h"

namespace draftscope {

/// An EAGLE checkpoint whose tensors were checked against its config.
struct EagleContents {
    EagleCheckpoint checkpoint;
    int vocab = 0;  ///< of the target
    HeadRows rows;  ///< tokens of the LM head's rows
    std::vector<std::string>
        tensors;  ///< official names of the tensors in the file, without the LM head's maps
};
/// Opens a checkpoint for a target. Without one (null), for the target that its config describes, whose
/// number of layers is not known.
Result<EagleContents> read_eagle_contents(const Contents& contents, const ModelFile* target);

}  // namespace draftscope
