#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/formats/weight_source.h"

namespace draftscope::testing {

/// Reads every tensor of an opened file, row by row.
inline void read_everything(const WeightSource& file) {
    std::vector<float> row;
    for (const std::string& name : file.names()) {
        const TensorInfo& info = *file.find(name);
        if (info.bytes == 0) continue;
        row.resize(info.cols());
        for (std::int64_t r = 0; r < info.rows(); ++r) file.read_row(info, r, row.data());
        (void)file.read_integers(name);
    }
}

/// Checks that an error message is one line.
inline void check_message(const Error& error) {
    if (error.message.find('\n') != std::string::npos) std::abort();
}

inline void read_everything(const Result<std::unique_ptr<WeightSource>>& opened) {
    if (opened.ok())
        read_everything(**opened);
    else
        check_message(opened.error());
}

}  // namespace draftscope::testing
