#include "base/python_wheels.h"

#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace draftscope {
namespace {

namespace fs = std::filesystem;

/// Returns the first python3 on PATH, or an empty path.
fs::path find_python() {
    const char* set = std::getenv("PATH");
    std::string_view rest = set == nullptr ? std::string_view() : std::string_view(set);
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(':'), rest.size());
        const fs::path python = fs::path(rest.substr(0, end)) / "python3";
        std::error_code error;
        if (fs::exists(python, error)) return python;
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return {};
}

/// Returns the folders above bin/ of `python` and of its link targets: the virtual environment first, then
/// the base installation.
std::vector<fs::path> python_prefixes(fs::path python) {
    constexpr int max_links = 8;
    std::vector<fs::path> prefixes;
    for (int i = 0; i < max_links && !python.empty(); ++i) {
        prefixes.push_back(python.parent_path().parent_path());
        std::error_code error;
        const fs::path target = fs::read_symlink(python, error);
        if (error) break;
        python = python.parent_path() / target;
    }
    return prefixes;
}

void append_matches(const std::string& pattern, std::vector<std::string>& paths) {
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
        paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
}

}  // namespace

std::vector<std::string> wheel_libraries(std::string_view name) {
    const std::vector<fs::path> prefixes = python_prefixes(find_python());
    std::vector<std::string> paths;
    for (const char* package : {"nvidia/*/lib/", "triton/backends/nvidia/lib/*/"})
        for (const fs::path& prefix : prefixes)
            for (const char* packages : {"lib/python3*/site-packages/", "lib/python3*/dist-packages/",
                                         "local/lib/python3*/dist-packages/"})
                append_matches((prefix / packages).string() + package + std::string(name), paths);
    return paths;
}

}  // namespace draftscope
