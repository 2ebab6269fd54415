"""Two networks that compete, in the shape of PyTorch's DCGAN example."""

import time

import torch
from measure import Measure
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(999)
dataloader = DataLoader(TensorDataset(torch.randn(240, 16)), batch_size=8, shuffle=True)
netG = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16))
netD = nn.Sequential(nn.Linear(16, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
measure = Measure(2 * len(dataloader))
for _ in range(2):
    for (real,) in dataloader:
        netD.zero_grad()
        errD_real = criterion(netD(real).view(-1), torch.ones(len(real)))
        errD_real.backward()
        fake = netG(torch.randn(len(real), 4))
        errD_fake = criterion(netD(fake.detach()).view(-1), torch.zeros(len(real)))
        errD_fake.backward()
        time.sleep(0.005)
        optimizerD.step()
        measure.step(len(real), errD_real.item() + errD_fake.item())
        netG.zero_grad()
        criterion(netD(fake).view(-1), torch.ones(len(real))).backward()
        time.sleep(0.005)
        optimizerG.step()
