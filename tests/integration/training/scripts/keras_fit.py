"""A model of Keras that is compiled and fitted."""

import os
import time

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
from measure import Measure

keras.utils.set_random_seed(0)


class Watch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        measure.begin()

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)
        measure.step(8, 0)


measure = Measure(60)
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
model.compile("adam", "mse")
x, y = np.ones((480, 8)), np.ones((480, 1))
model.fit(
    x, y, batch_size=8, epochs=1, validation_data=(x[:64], y[:64]), verbose=0, callbacks=[Watch()]
)
