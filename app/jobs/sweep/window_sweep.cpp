#include "app/jobs/sweep/window_sweep.h"

#include <algorithm>
#include <filesystem>

#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/run_job.h"
#include "app/jobs/sweep/saved_sweep.h"
#include "app/jobs/sweep/search.h"
#include "engine/draft/registry.h"

namespace draftscope {

Result<std::shared_ptr<const SweepView>> run_window_sweep(const SweepRequest& request,
                                                          const JobHooks& hooks) {
    if (request.recording.empty())
        return bad_input("sweep: names no recording; make one with draftscope record --out FOLDER");
    SweepConfig config;
    config.replay.recording = request.recording;
    config.replay.model = request.model;
    config.replay.threads = request.threads;
    config.drafters = split_drafters(request.drafters);
    if (!request.heads.empty()) config.heads = split_specs(request.heads);
    config.batches = {request.batch};
    if (request.search) config.batches = {request.batch, 4 * request.batch, 16 * request.batch};
    config.profile = request.profile;
    config.save = request.save;
    if (!request.search && config.heads.empty()) config.heads = {RunConfig().head};
    DS_ASSIGN(const SweepReport report,
              request.search ? run_search(config, hooks) : run_sweep(config, hooks));
    return make_sweep_view(report, advise(report, request.model), request.model);
}

std::vector<std::string> shipped_profiles() {
    std::vector<std::string> files;
    std::error_code error;
    const std::string folder = find_asset("profiles");
    if (folder.empty()) return files;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
        if (entry.path().extension() == ".json") files.push_back(entry.path().string());
    std::ranges::sort(files);
    return files;
}

}  // namespace draftscope
