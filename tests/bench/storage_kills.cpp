// Repeatedly kills a process that writes a capture, at random moments, and checks the remaining file. Every
// acknowledged commit must be present, `check` must find only the cut, and the repaired file must be clean.
// Usage: storage_kills [kills] [first seed]. After the first violation, it prints the seed and exits with 1.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "tests/unit/storage/killed_writer.h"

int main(int argc, char** argv) {
    using namespace draftscope;
    const int kills = argc > 1 ? std::atoi(argv[1]) : 200;
    const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    std::string folder = std::filesystem::temp_directory_path() / "storage_kills_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
        fmt::print(stderr, "storage_kills: can't create the folder {}\n", folder);
        return 2;
    }
    const TimeNs start = monotonic_ns();
    int ended = 0;
    std::int64_t acknowledged = 0, recovered = 0;
    for (int i = 0; i < kills; ++i) {
        const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
        const testing::KillOutcome outcome =
            testing::kill_writer(fmt::format("{}/{}.dscope", folder, seed), seed);
        fmt::print("seed {}: {} steps acknowledged, {} in the file{}{}\n", seed, outcome.acknowledged,
                   outcome.recovered, outcome.ended ? ", run ended" : "",
                   outcome.violation.empty() ? "" : ": " + outcome.violation);
        if (!outcome.violation.empty()) return 1;
        ended += outcome.ended ? 1 : 0;
        acknowledged += outcome.acknowledged;
        recovered += outcome.recovered;
    }
    std::filesystem::remove_all(folder);
    fmt::print(
        "{} kills survived in {:.1f} s, {} of them after the run's end; {} steps acknowledged, {} found\n",
        kills, seconds(monotonic_ns() - start), ended, acknowledged, recovered);
    return 0;
}
