#include "app/gui/model/graph/node_facts.h"

#include "tests/app/gui/model/samples.h"

namespace pw::gui {
namespace {

std::vector<QString> namesOf(const std::vector<TensorFact>& tensors) {
  std::vector<QString> names;
  for (const TensorFact& tensor : tensors) names.push_back(tensor.name);
  return names;
}

TEST(NodeFacts, ABlockOfGptReadsAndGivesTheHiddenStateAndHasItsParameters) {
  const SampleModel model("gpt_small");
  const ModelFlow flow = flowOf(*model.graph, model.bindings);
  const CallRow& block = model.tree.row(model.row("blocks.1"));
  const NodeFacts facts = factsOf(*model.graph, flow, model.bindings, block.firstNode, block.endNode);
  // 2 samples of 32 tokens, 64 numbers of 4 bytes each.
  ASSERT_EQ(facts.inputs.size(), 1U);
  EXPECT_EQ(facts.inputs[0].shape, "2 × 32 × 64");
  EXPECT_EQ(facts.inputs[0].type, "float32");
  EXPECT_EQ(facts.inputs[0].bytes, 2 * 32 * 64 * 4);
  ASSERT_EQ(facts.outputs.size(), 1U);
  EXPECT_EQ(facts.outputs[0].bytes, 2 * 32 * 64 * 4);
  Bytes bytes = 0;
  for (const TensorFact& parameter : facts.parameters) {
    EXPECT_TRUE(parameter.name.startsWith("blocks.1.")) << parameter.name.toStdString();
    bytes += parameter.bytes;
  }
  EXPECT_EQ(bytes, block.parameterBytes);
}

TEST(NodeFacts, TheModelReadsItsInputsAndGivesItsOutputs) {
  const SampleModel model("gpt_small");
  const ModelFlow flow = flowOf(*model.graph, model.bindings);
  const CallRow& all = model.tree.row(0);
  const NodeFacts facts = factsOf(*model.graph, flow, model.bindings, all.firstNode, all.endNode);
  EXPECT_EQ(namesOf(facts.inputs), namesOf(tensorsOf(*model.graph, flow, model.bindings, model.graph->inputs)));
  EXPECT_EQ(namesOf(facts.outputs), namesOf(tensorsOf(*model.graph, flow, model.bindings, model.graph->outputs)));
}

TEST(NodeFacts, TheTextNamesTensorsFindingsAndWhatIsLeftOut) {
  const SampleModel model("gpt_small");
  const ModelFlow flow = flowOf(*model.graph, model.bindings);
  const CallRow& block = model.tree.row(model.row("blocks.1"));
  const NodeFacts facts = factsOf(*model.graph, flow, model.bindings, block.firstNode, block.endNode);
  Finding finding;
  finding.kind = FindingKind::BatchNorm;
  finding.op = "batch_norm<b>";
  const QString text = nodeText(block, facts, {&finding}, 2);
  EXPECT_TRUE(text.contains("blocks.1")) << text.toStdString();
  EXPECT_TRUE(QString(text).replace(QChar::Nbsp, ' ').contains("2 × 32 × 64"));
  EXPECT_TRUE(text.contains(QString("… and %1 more").arg(facts.parameters.size() - 2)));
  EXPECT_TRUE(text.contains("batch_norm&lt;b&gt;")) << "what a file says is not markup";
}

TEST(BoxText, NamesTheTimesOfForwardAndBackward) {
  CallRow row;
  row.forward = 16'900;
  row.backward = 33'800;
  row.parameters = 12'300;
  row.saved = Bytes{1} << 20;
  EXPECT_EQ(boxText(row).toStdString(), "F 16.9 µs · B 33.8 µs · 12.3 k parameters · keeps 1.00 MiB");
  row.backward = 0;
  row.parameters = 0;
  row.saved = 0;
  EXPECT_EQ(boxText(row).toStdString(), "F 16.9 µs");
}

}  // namespace
}  // namespace pw::gui
