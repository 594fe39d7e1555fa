import sys

import pipewright as pw
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
samples, classes = torch.randn(48, 16), torch.randint(4, (48,))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(samples, classes), batch_size=8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
trainer = pw.Trainer(model, samples[:8], optimizer=optimizer, loss="cross_entropy", clip_norm=1.0, ranks=2)
for x, y in loader:
    loss = trainer.step(x, y)
    schedule.step()
    print(f"{loss:.6f}")
torch.save(trainer.update().state_dict(), sys.argv[1])
