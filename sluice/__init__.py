"""The public interface of Sluice for other Python packages: `sluice.kinds` declares kinds."""
