# SPDX-License-Identifier: Apache-2.0
"""The manifests of examples/kubernetes: they are what the API takes, and their containers' commands make jobs.

Hosts of a test bed are the pods, with the names and the environment that Kubernetes and the operator would give them.
"""

import os
import re
import shutil
import signal
import tempfile
import time
import unittest

import launched
from launched import BOTH, TOP, TRAIN, Case, environment, harness

try:
    import kubernetes_validate
    import yaml
except ImportError:
    raise unittest.SkipTest("kubernetes-validate is not installed") from None

SECRETS = {("byteps", "secret"): "as long as it takes, and longer"}
PROGRAMS = {"python3": harness.python(), "byteps": harness.program(), "train.py": TRAIN}
CUSTOM = {
    "PyTorchJob": ("kubeflow.org/v1", "pytorchReplicaSpecs"),
    "MPIJob": ("kubeflow.org/v2beta1", "mpiReplicaSpecs"),
}


def manifests(name):
    """{kind: manifest} of a file."""
    with open(os.path.join(TOP, "examples", "kubernetes", name), encoding="ascii") as file:
        return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(file)}


def replicas(manifest):
    """{role: how many pods, and of which template} of a resource of an operator."""
    return manifest["spec"][CUSTOM[manifest["kind"]][1]]


def container(template):
    (only,) = template["spec"]["containers"]
    return only


def variables(template, index, given):
    """The environment of a pod: what the operator has `given` comes last, as it appends it."""
    fields = {"metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index)}
    env = {}
    for entry in container(template).get("env", []):
        source = entry.get("valueFrom", {})
        if "secretKeyRef" in source:
            env[entry["name"]] = SECRETS[source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]]
        elif "fieldRef" in source:
            env[entry["name"]] = fields[source["fieldRef"]["fieldPath"]]
        else:
            env[entry["name"]] = entry["value"]
    return {**env, **given}


class Schemas(unittest.TestCase):
    """No server is there to ask: these are the schemas that the project publishes."""

    def check(self, manifest):
        kubernetes_validate.validate(manifest, "1.34", strict=True)

    def test_of_kubernetes_itself(self):
        for name, kinds in (
            ("workers.yaml", {"Service", "Job"}),
            ("servers.yaml", {"Service", "StatefulSet"}),
            ("scheduler.yaml", {"Service", "StatefulSet"}),
        ):
            found = manifests(name)
            self.assertEqual(set(found), kinds)
            for manifest in found.values():
                with self.subTest(f"{name}: {manifest['kind']}"):
                    self.check(manifest)

    def test_of_operators(self):
        """Theirs are not published there: what is checked are the pods."""
        for name, kind, roles in (
            ("pytorchjob.yaml", "PyTorchJob", {"Master", "Worker"}),
            ("mpijob.yaml", "MPIJob", {"Launcher", "Worker"}),
        ):
            manifest = manifests(name)[kind]
            self.assertEqual((manifest["apiVersion"], set(replicas(manifest))), (CUSTOM[kind][0], roles))
            for role, part in replicas(manifest).items():
                with self.subTest(f"{name}: {role}"):
                    self.assertGreater(part["replicas"], 0)
                    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **part["template"]}
                    self.check(pod)

    def test_what_is_wrong_is_seen(self):
        job = manifests("workers.yaml")["Job"]
        container(job["spec"]["template"])["comand"] = ["python3"]
        self.assertRaises(kubernetes_validate.ValidationError, self.check, job)


class Pods(Case):
    def setUp(self):
        launched.needs("torch")
        self.pods, self.started = 0, []
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def mounted(self, text, template, pod):
        """The text with the folders of this pod in the place of its mounts, all of which are empty at first."""
        for mount in container(template).get("volumeMounts", []):
            (volume,) = [one for one in template["spec"]["volumes"] if one["name"] == mount["name"]]
            self.assertIn("emptyDir", volume)
            folder = os.path.join(self.folder, f"{pod}-{mount['name']}")
            os.makedirs(folder, exist_ok=True)
            text = text.replace(mount["mountPath"], folder)
        return text

    def start(self, template, index=0, more="", **given):
        """A pod on the next host."""
        env = variables(template, index, given)
        env["BYTEPS_SET"] = self.mounted(f"{env['BYTEPS_SET']}\n{more}", template, self.pods)
        command = [PROGRAMS.get(word, word) for word in container(template)["command"]]
        self.started.append(self.bed.popen(self.pods, command, env=environment(JOBS="1", **env), **BOTH))
        self.pods += 1

    def probe(self, template, pod):
        """Whether the liveness probe of a pod is content."""
        command = container(template)["livenessProbe"]["exec"]["command"]
        return harness.execute([self.mounted(word, template, pod) for word in command]).returncode == 0

    def check_all(self, workers):
        texts = [harness.communicate(part)[0] for part in self.started]
        self.assertEqual([part.returncode for part in self.started], [0] * len(texts), texts)
        self.check("".join(texts), [(rank, workers, 0, 1) for rank in range(workers)], jobs=1)

    def start_workers(self, more=""):
        service, job = manifests("workers.yaml").values()
        template = job["spec"]["template"]
        name = job["metadata"]["name"]
        self.assertEqual(template["spec"]["subdomain"], service["metadata"]["name"])
        self.assertEqual(service["spec"]["selector"], {"batch.kubernetes.io/job-name": name})
        self.bed.name_host(self.pods, f"{name}-0.{service['metadata']['name']}")
        for index in range(job["spec"]["completions"]):
            self.start(template, index, more)
        return job["spec"]["completions"]

    def test_an_indexed_job(self):
        self.bed = self.make_bed(hosts=4)
        self.check_all(self.start_workers())

    def setting_with(self, name):
        """What a comment in the manifest of the workers tells of."""
        with open(os.path.join(TOP, "examples", "kubernetes", "workers.yaml"), encoding="ascii") as file:
            (more,) = re.findall(f'With {name} also "(.*)"', file.read())
        return more

    def test_with_a_scheduler(self):
        self.bed = self.make_bed(hosts=5)
        workers = self.start_workers(self.setting_with("scheduler.yaml"))
        service, scheduler = manifests("scheduler.yaml").values()
        template, name = scheduler["spec"]["template"], service["metadata"]["name"]
        self.assertEqual(template["spec"]["restartPolicy"], "Always")
        self.bed.name_host(self.pods, f"{scheduler['metadata']['name']}-0.{name}")
        self.start(template)
        self.check_all(workers)

    def test_with_servers(self):
        self.bed = self.make_bed(hosts=6)
        workers = self.start_workers(self.setting_with("servers.yaml"))
        servers = manifests("servers.yaml")["StatefulSet"]["spec"]
        for index in range(servers["replicas"]):
            self.start(servers["template"], index)
        self.check_all(workers)

    def test_the_probe_of_servers(self):
        """It is content with one that waits for its job, and not with one that hangs."""
        self.bed = self.make_bed(hosts=1)
        template = manifests("servers.yaml")["StatefulSet"]["spec"]["template"]
        self.start(template)
        (server,) = self.started
        harness.until(lambda: self.probe(template, 0), "a server that is alive")
        server.send_signal(signal.SIGSTOP)
        file = os.path.join(self.folder, "0-run", "alive")
        harness.until(lambda: harness.state(server.pid) == "T", "a server that is stopped")
        os.utime(file, (0, time.time() - 60))
        self.assertFalse(self.probe(template, 0))
        server.send_signal(signal.SIGCONT)
        harness.until(lambda: self.probe(template, 0), "a server that is alive again")
        server.terminate()
        harness.communicate(server)

    def test_an_mpijob(self):
        """mpirun in the launcher's pod, with what the operator gives it, reaches the workers' pods, but not by ssh."""
        mpirun = shutil.which("mpirun.openmpi")
        if mpirun is None:
            self.skipTest("mpirun.openmpi is not installed")
        job = manifests("mpijob.yaml")["MPIJob"]
        launcher, workers = (replicas(job)[role] for role in ("Launcher", "Worker"))
        self.bed = self.make_bed(hosts=1 + workers["replicas"])
        hostfile = os.path.join(self.folder, "hostfile")
        with open(hostfile, "w", encoding="ascii") as file:
            for index in range(workers["replicas"]):
                name = f"{job['metadata']['name']}-worker-{index}.{job['metadata']['name']}.default.svc"
                self.bed.name_host(1 + index, name)
                print(f"{name} slots={job['spec']['slotsPerWorker']}", file=file)
        given = {
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_default_hostfile": hostfile,
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
            "OMPI_MCA_plm_rsh_agent": launched.launch_agent(self.bed, self.folder),
            "OMPI_MCA_mca_base_env_list": ";".join(environment(JOBS="1")),  # where this build lies is no part of images
        }
        command = container(launcher["template"])["command"]
        self.assertEqual(command[0], "mpirun")
        env = environment(JOBS="1", **launched.AS_ROOT, **given)
        program = [mpirun, *(PROGRAMS.get(word, word) for word in command[1:])]
        self.started.append(self.bed.popen(0, program, env=env, **BOTH))
        self.check_all(workers["replicas"])

    def test_a_pytorchjob(self):
        self.bed = self.make_bed(hosts=4)
        job = manifests("pytorchjob.yaml")["PyTorchJob"]
        size = sum(part["replicas"] for part in replicas(job).values())
        master = f"{job['metadata']['name']}-master-0"
        self.bed.name_host(0, master)
        given = {"MASTER_ADDR": master, "MASTER_PORT": "23456", "WORLD_SIZE": str(size)}
        for role in ("Master", "Worker"):
            part = replicas(job)[role]
            self.assertEqual(container(part["template"])["name"], "pytorch")
            for _ in range(part["replicas"]):
                self.start(part["template"], RANK=str(self.pods), **given)
        self.check_all(size)


if __name__ == "__main__":
    unittest.main()
