#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/user_folders.h"

namespace draftscope::testing {

/// Returns the path of the demo model: $DRAFTSCOPE_DEMO_MODEL, else the user's cache folder. The file may be
/// absent. A test that needs it starts with ASSERT_TRUE(demo_model_present()) << demo_model_hint().
inline std::string demo_model_path() {
    if (const char* given = std::getenv("DRAFTSCOPE_DEMO_MODEL"); given != nullptr && *given != '\0')
        return given;
    return (cache_folder() / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf").string();
}

inline bool demo_model_present() {
    std::error_code ignored;
    return std::filesystem::is_regular_file(demo_model_path(), ignored);
}

inline std::string demo_model_hint() {
    return "the demo model is not at " + demo_model_path() +
           "; run tools/fetch_deps.sh model, or set DRAFTSCOPE_DEMO_MODEL to the file";
}

}  // namespace draftscope::testing
