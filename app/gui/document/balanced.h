#pragma once

namespace pw::gui {

struct Design;
class Document;

/// Leaves the splits of a design that is the document's to be balanced for its next costs, where they are those that balance the present
/// ones: nobody chose them. Others stay, and those of a model of more than 20,000 nodes, which would take noticeably long to look at.
/// Cost: that of `balancedSplits`.
void balanceAnew(const Document& document, Design& design);

}  // namespace pw::gui
