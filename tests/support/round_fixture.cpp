#include "tests/support/round_fixture.h"

#include <fstream>

#include "tests/support/device_rig.h"

namespace draftscope::testing {

RoundFixture::RoundFixture(kernels::Backend& exec, kernels::Precision precision)
    : ranking_(RankingFile::shuffled(vocab)) {
    auto target = DecodeFixture::build(tiny(), precision, &exec);
    const ModelConfig& config = target->config();
    eagle_.emplace(config, 77);
    eagle3_.emplace(config, 78, vocab);
    eagle3_normed_.emplace(config, 83, 0, true);
    medusa_.emplace(config, false, 79);
    hydra_.emplace(config, true, 80);
    medusa_whole_.emplace(config, false, 81, 3, true);
    hydra_whole_.emplace(config, true, 82, 3, true);
    fixture_.emplace(std::move(target),
                     std::map<std::string, std::string>{{"eagle2", eagle_->folder()},
                                                        {"eagle3", eagle3_->folder()},
                                                        {"medusa", medusa_->folder()},
                                                        {"hydra", hydra_->folder()}},
                     ranking_.path());
    fixture_->run_on(exec);
    artefacts_.emplace(*fixture_);
    std::ofstream(folder_.file("tree.json"))
        << "[[0],[1],[2],[3],[0,0],[0,1],[0,2],[1,0],[3,2],[0,0,0],[0,0,1],[0,2,3],[1,0,0]]";
}

DecodeCase RoundFixture::resolve(DecodeCase setting) const {
    if (setting.drafter == "eagle3_normed") setting.drafter = "eagle3:" + eagle3_normed_->folder();
    if (setting.drafter == "medusa_whole") setting.drafter = "medusa:" + medusa_whole_->folder();
    if (setting.drafter == "hydra_whole") setting.drafter = "hydra:" + hydra_whole_->folder();
    if (setting.tree == fixed.tree) setting.tree = "choices:" + folder_.file("tree.json");
    return setting;
}

std::vector<StepRecord> RoundFixture::steps(const DecodeCase& setting,
                                            const std::vector<std::vector<TokenId>>& prompts) {
    RecordList list;
    (void)fixture_->decode(resolve(setting), prompts, &list);
    return RecordList::of<StepRecord>(list.take());
}

}  // namespace draftscope::testing
