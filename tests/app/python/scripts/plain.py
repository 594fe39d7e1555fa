import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
samples, classes = torch.randn(48, 16), torch.randint(4, (48,))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(samples, classes), batch_size=8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
for x, y in loader:
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    print(f"{loss:.6f}")
torch.save(model.state_dict(), sys.argv[1])
