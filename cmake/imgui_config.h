#pragma once

// User configuration of Dear ImGui, the same for every translation unit.
#define ImDrawIdx unsigned int
#define IMGUI_DISABLE_OBSOLETE_FUNCTIONS
#ifdef IMGUI_ENABLE_TEST_ENGINE
#define IMGUI_TEST_ENGINE_ENABLE_STD_FUNCTION 1
#endif
