"""The metrics of several models as one exposition, each sample with the label `model`, beside those of the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from kvdrive.server.metrics import ANSWERS
from kvdrive.server.router.models import Model, Models

_BUSY = ("kvdrive_requests_waiting", "kvdrive_sequences_running")


class RouterMetrics:
    """`requests`: answers that no model has given."""

    def __init__(self, models: Models) -> None:
        self._own = CollectorRegistry()
        self.requests = Counter("kvdrive_requests", ANSWERS, ["path", "status"], registry=self._own)
        self._models = models

    def text(self, of_models: Mapping[str, bytes]) -> bytes:
        """The exposition; `of_models`: that of each loaded model."""
        shown = CollectorRegistry()
        shown.register(_Merged([*_labelled(of_models), *self._own.collect(), *_of_models(self._models.all.values())]))
        return generate_latest(shown)


class _Merged(Collector):
    """Families, those of the same name as one."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families: dict[str, Metric] = {}
        for one in families:
            known = self._families.setdefault(one.name, Metric(one.name, one.documentation, one.type))
            known.samples += one.samples

    def collect(self) -> Iterator[Metric]:
        yield from self._families.values()


def _labelled(of_models: Mapping[str, bytes]) -> Iterator[Metric]:
    for name, text in of_models.items():
        for family in text_string_to_metric_families(text.decode()):
            family.samples = [one._replace(labels=one.labels | {"model": name}) for one in family.samples]
            yield family


def _of_models(models: Iterable[Model]) -> Iterator[Metric]:
    loaded = GaugeMetricFamily("kvdrive_model_loaded", "1: the model is loaded", labels=["model"])
    loads = CounterMetricFamily("kvdrive_model_loads", "how often the model was loaded", labels=["model"])
    failures = CounterMetricFamily("kvdrive_model_load_failures", "how often that failed", labels=["model"])
    for one in models:
        loaded.add_metric([one.offer.name], one.ready is not None)
        loads.add_metric([one.offer.name], one.loads)
        failures.add_metric([one.offer.name], one.failures)
    yield from (loaded, loads, failures)


def is_busy(text: bytes) -> bool:
    """True if the exposition of a model says that sequences wait or run."""
    lines = [line.split() for line in text.decode().splitlines() if line.startswith(_BUSY)]
    return any(float(value) > 0 for _, value in lines)
